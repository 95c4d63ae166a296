import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def depthwise_conv1d(x, weight, bias):
    """One tile of four by the scalar and vector engines, the others by the tensor engine too.

    x[8, 512, 2048], weight[512, 3], bias[512] -> y[8, 512, 2048]; all of x's type, sums in float32.
    A tile holds every fourth channel: so weights and bias come in one piece for each partition.
    """
    y = nl.ndarray((8, 512, 2048), x.dtype, buffer=nl.shared_hbm)
    # The identity: zeros with ones on the diagonal, put together in HBM.
    zeros = nl.ndarray((128, 128), x.dtype, buffer=nl.sbuf)
    ones = nl.ndarray((128, 1), x.dtype, buffer=nl.sbuf)
    identity_hbm = nl.ndarray((128, 128), x.dtype, buffer=nl.hbm)
    identity = nl.ndarray((128, 128), x.dtype, buffer=nl.sbuf)
    nisa.memset(zeros, 0.0)
    nisa.memset(ones, 1.0)
    nisa.dma_copy(identity_hbm, zeros)
    nisa.dma_copy(identity_hbm.ap(((129, 128), (1, 1)), offset=0), ones)
    # The first image's tiles are on their way meanwhile.
    x_first = nl.ndarray((128, 4, 2050), x.dtype, buffer=nl.sbuf)
    nisa.memset(x_first[0:128, 0:4, 0:2050:2049], 0.0, engine=nisa.gpsimd_engine)
    nisa.dma_copy(x_first[0:128, 0, 1:2049], x[0, 0:512:4, 0:2048])
    w_given = nl.ndarray((128, 12), x.dtype, buffer=nl.sbuf)
    b_given = nl.ndarray((128, 4), x.dtype, buffer=nl.sbuf)
    w = nl.ndarray((128, 12), nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((128, 4), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(w_given, weight.ap(((12, 128), (1, 12)), offset=0))
    nisa.dma_copy(b_given, bias.ap(((4, 128), (1, 4)), offset=0))
    nisa.tensor_copy(w, w_given)
    nisa.tensor_copy(b, b_given)
    for c in range(1, 4):
        nisa.dma_copy(x_first[0:128, c, 1:2049], x[0, c:512:4, 0:2048])
    nisa.dma_copy(identity, identity_hbm)
    diagonal = nl.ndarray((128, 12, 128), x.dtype, buffer=nl.sbuf)
    for k in range(12):
        nisa.tensor_scalar(diagonal[0:128, k, 0:128], identity, nl.multiply, w[0:128, k : k + 1])
    for n in range(8):
        for c in range(4):
            w0 = w[0:128, c * 3 : c * 3 + 1]
            w1 = w[0:128, c * 3 + 1 : c * 3 + 2]
            w2 = w[0:128, c * 3 + 2 : c * 3 + 3]
            b0 = b[0:128, c : c + 1]
            y_tile = nl.ndarray((128, 2048), x.dtype, buffer=nl.sbuf)
            if n == 0:
                x_tile = x_first[0:128, c, 0:2050]
            else:
                x_tile = nl.ndarray((128, 2050), x.dtype, buffer=nl.sbuf)
                nisa.memset(x_tile[0:128, 0:2050:2049], 0.0, engine=nisa.gpsimd_engine)
                nisa.dma_copy(x_tile[0:128, 1:2049], x[n, c:512:4, 0:2048])
            if c == 0:
                total = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
                nisa.activation(total, nl.copy, x_tile[0:128, 1:2049], bias=b0, scale=w1)
                nisa.scalar_tensor_tensor(
                    total, x_tile[0:128, 0:2048], nl.multiply, w0, nl.add, total
                )
                nisa.scalar_tensor_tensor(
                    y_tile, x_tile[0:128, 2:2050], nl.multiply, w2, nl.add, total
                )
                nisa.dma_copy(y[n, c:512:4, 0:2048], y_tile)
            else:
                for g in range(0, 2048, 1024):
                    sums = nl.ndarray((128, 1024), nl.float32, buffer=nl.psum)
                    for h in range(0, 1024, 512):
                        for f in range(2):
                            nisa.nc_matmul(
                                sums[0:128, h : h + 512],
                                diagonal[0:128, c * 3 + f, 0:128],
                                x_tile[0:128, g + h + f : g + h + f + 512],
                                accumulate=(f > 0),
                            )
                    last = nl.ndarray((128, 1024), nl.float32, buffer=nl.sbuf)
                    nisa.activation(
                        last, nl.copy, x_tile[0:128, g + 2 : g + 1026], bias=b0, scale=w2
                    )
                    nisa.tensor_tensor(y_tile[0:128, g : g + 1024], last, sums, nl.add)
                    nisa.dma_copy(y[n, c:512:4, g : g + 1024], y_tile[0:128, g : g + 1024])
    return y
