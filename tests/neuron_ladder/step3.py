import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def depthwise_conv1d(x, weight):
    """Step 3: each tile is loaded, computed and stored before the next one.

    x[8, 512, 2048], weight[512, 3] -> y[8, 512, 2048], float32; one column of zeros on each side.
    """
    y = nl.ndarray((8, 512, 2048), nl.float32, buffer=nl.shared_hbm)
    for n in range(8):
        for c in range(4):
            x_tile = nl.ndarray((128, 2050), nl.float32, buffer=nl.sbuf)
            w_tile = nl.ndarray((128, 3), nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
            nisa.memset(x_tile, 0.0, engine=nisa.gpsimd_engine)
            nisa.dma_copy(x_tile[0:128, 1:2049], x[n, c * 128 : c * 128 + 128, 0:2048])
            nisa.dma_copy(w_tile, weight[c * 128 : c * 128 + 128, 0:3])
            for w in range(2048):
                prod = nl.ndarray((128, 3), nl.float32, buffer=nl.sbuf)
                nisa.tensor_tensor(prod, x_tile[0:128, w : w + 3], w_tile, nl.multiply)
                nisa.tensor_reduce(y_tile[0:128, w : w + 1], nl.add, prod, axis=1, keepdims=True)
            nisa.dma_copy(y[n, c * 128 : c * 128 + 128, 0:2048], y_tile)
    return y
