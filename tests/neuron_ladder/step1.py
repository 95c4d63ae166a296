import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def depthwise_conv1d(x, weight):
    """Step 1: the filter's tile is named outside of the loop over columns.

    Everything is loaded, then computed, then stored. SBUF has no room for the whole input and
    output at once: 8 of the 32 tiles of each stay, the others are spilled to x_spilled and
    y_spilled, which the compiler of the published run did on its own.

    x[8, 512, 2048], weight[512, 3] -> y[8, 512, 2048], float32; one column of zeros on each side.
    """
    y = nl.ndarray((8, 512, 2048), nl.float32, buffer=nl.shared_hbm)
    x_spilled = nl.ndarray((24, 128, 2050), nl.float32, buffer=nl.hbm)
    y_spilled = nl.ndarray((24, 128, 2048), nl.float32, buffer=nl.hbm)
    x_held = nl.ndarray((128, 8 * 2050), nl.float32, buffer=nl.sbuf)
    y_held = nl.ndarray((128, 8 * 2048), nl.float32, buffer=nl.sbuf)
    w_held = nl.ndarray((128, 4 * 3), nl.float32, buffer=nl.sbuf)
    nisa.memset(x_held, 0.0, engine=nisa.gpsimd_engine)
    for n in range(8):
        for c in range(4):
            k = n * 4 + c
            if k < 8:
                nisa.dma_copy(
                    x_held[0:128, k * 2050 + 1 : k * 2050 + 2049],
                    x[n, c * 128 : c * 128 + 128, 0:2048],
                )
            else:
                x_tile = nl.ndarray((128, 2050), nl.float32, buffer=nl.sbuf)
                nisa.memset(x_tile, 0.0, engine=nisa.gpsimd_engine)
                nisa.dma_copy(x_tile[0:128, 1:2049], x[n, c * 128 : c * 128 + 128, 0:2048])
                nisa.dma_copy(x_spilled[k - 8, 0:128, 0:2050], x_tile)
    for c in range(4):
        nisa.dma_copy(w_held[0:128, c * 3 : c * 3 + 3], weight[c * 128 : c * 128 + 128, 0:3])
    for n in range(8):
        for c in range(4):
            k = n * 4 + c
            w_tile = w_held[0:128, c * 3 : c * 3 + 3]
            if k < 8:
                for w in range(2048):
                    prod = nl.ndarray((128, 3), nl.float32, buffer=nl.sbuf)
                    nisa.tensor_tensor(
                        prod,
                        x_held[0:128, k * 2050 + w : k * 2050 + w + 3],
                        w_tile,
                        nl.multiply,
                    )
                    nisa.tensor_reduce(
                        y_held[0:128, k * 2048 + w : k * 2048 + w + 1],
                        nl.add,
                        prod,
                        axis=1,
                        keepdims=True,
                    )
            else:
                x_tile = nl.ndarray((128, 2050), nl.float32, buffer=nl.sbuf)
                y_tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(x_tile, x_spilled[k - 8, 0:128, 0:2050])
                for w in range(2048):
                    prod = nl.ndarray((128, 3), nl.float32, buffer=nl.sbuf)
                    nisa.tensor_tensor(
                        prod,
                        x_tile[0:128, w : w + 3],
                        w_tile,
                        nl.multiply,
                    )
                    nisa.tensor_reduce(
                        y_tile[0:128, w : w + 1], nl.add, prod, axis=1, keepdims=True
                    )
                nisa.dma_copy(y_spilled[k - 8, 0:128, 0:2048], y_tile)
    for n in range(8):
        for c in range(4):
            k = n * 4 + c
            if k < 8:
                nisa.dma_copy(
                    y[n, c * 128 : c * 128 + 128, 0:2048],
                    y_held[0:128, k * 2048 : k * 2048 + 2048],
                )
            else:
                y_tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(y_tile, y_spilled[k - 8, 0:128, 0:2048])
                nisa.dma_copy(y[n, c * 128 : c * 128 + 128, 0:2048], y_tile)
    return y
