import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def depthwise_conv1d(x, weight, bias):
    """Structure C: the scalar engine makes two taps into PSUM, the vector engine adds the third.

    x[8, 512, 2048], weight[512, 3], bias[512] -> y[8, 512, 2048]; all of x's type, sums in float32.
    A tile holds every fourth channel: so weights and bias come in one piece for each partition.
    """
    y = nl.ndarray((8, 512, 2048), x.dtype, buffer=nl.shared_hbm)
    w_given = nl.ndarray((128, 12), x.dtype, buffer=nl.sbuf)
    b_given = nl.ndarray((128, 4), x.dtype, buffer=nl.sbuf)
    w = nl.ndarray((128, 12), nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((128, 4), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(w_given, weight.ap(((12, 128), (1, 12)), offset=0))
    nisa.dma_copy(b_given, bias.ap(((4, 128), (1, 4)), offset=0))
    nisa.tensor_copy(w, w_given)
    nisa.tensor_copy(b, b_given)
    for n in range(8):
        for c in range(4):
            w0 = w[0:128, c * 3 : c * 3 + 1]
            w1 = w[0:128, c * 3 + 1 : c * 3 + 2]
            w2 = w[0:128, c * 3 + 2 : c * 3 + 3]
            b0 = b[0:128, c : c + 1]
            x_tile = nl.ndarray((128, 2050), x.dtype, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 2048), x.dtype, buffer=nl.sbuf)
            nisa.memset(x_tile[0:128, 0:2050:2049], 0.0, engine=nisa.gpsimd_engine)
            nisa.dma_copy(x_tile[0:128, 1:2049], x[n, c:512:4, 0:2048])
            for h in range(0, 2048, 1024):
                one = nl.ndarray((128, 1024), nl.float32, buffer=nl.psum)
                two = nl.ndarray((128, 1024), nl.float32, buffer=nl.psum)
                total = nl.ndarray((128, 1024), nl.float32, buffer=nl.sbuf)
                nisa.activation(one, nl.copy, x_tile[0:128, h : h + 1024], bias=b0, scale=w0)
                nisa.activation(two, nl.copy, x_tile[0:128, h + 1 : h + 1025], scale=w1)
                nisa.scalar_tensor_tensor(
                    total, x_tile[0:128, h + 2 : h + 1026], nl.multiply, w2, nl.add, one
                )
                nisa.tensor_tensor(y_tile[0:128, h : h + 1024], total, two, nl.add)
            nisa.dma_copy(y[n, c:512:4, 0:2048], y_tile)
    return y
