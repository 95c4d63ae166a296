import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def depthwise_conv1d(x, weight, bias):
    """Structure A: the vector engine alone.

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
            x_tile = nl.ndarray((128, 2048), x.dtype, buffer=nl.sbuf)
            total = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 2048), x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(x_tile, x[n, c:512:4, 0:2048])
            nisa.tensor_scalar(total, x_tile, nl.multiply, w1, op1=nl.add, operand1=b0)
            nisa.scalar_tensor_tensor(
                total[0:128, 1:2048],
                x_tile[0:128, 0:2047],
                nl.multiply,
                w0,
                nl.add,
                total[0:128, 1:2048],
            )
            nisa.scalar_tensor_tensor(
                y_tile[0:128, 0:2047],
                x_tile[0:128, 1:2048],
                nl.multiply,
                w2,
                nl.add,
                total[0:128, 0:2047],
            )
            nisa.tensor_copy(y_tile[0:128, 2047:2048], total[0:128, 2047:2048])
            nisa.dma_copy(y[n, c:512:4, 0:2048], y_tile)
    return y
