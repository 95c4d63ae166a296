import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def depthwise_conv1d(x, weight):
    """Step 6: the loop over columns is split.

    The compiler of the published run then computed 128 columns with one multiply and one sum (512
    of each); here that is written out, with views that repeat elements.

    x[8, 512, 2048], weight[512, 3] -> y[8, 512, 2048], float32; one column of zeros on each side.
    """
    y = nl.ndarray((8, 512, 2048), nl.float32, buffer=nl.shared_hbm)
    for c in range(4):
        w_tile = nl.ndarray((128, 3), nl.float32, buffer=nl.sbuf)
        w_psum = nl.ndarray((128, 3), nl.float32, buffer=nl.psum)
        nisa.dma_copy(w_tile, weight[c * 128 : c * 128 + 128, 0:3])
        nisa.tensor_copy(w_psum, w_tile)
        for n in range(8):
            x_tile = nl.ndarray((128, 2050), nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
            nisa.memset(x_tile, 0.0, engine=nisa.gpsimd_engine)
            nisa.dma_copy(x_tile[0:128, 1:2049], x[n, c * 128 : c * 128 + 128, 0:2048])
            for w in range(0, 2048, 128):
                prod = nl.ndarray((128, 128, 3), nl.float32, buffer=nl.sbuf)
                nisa.tensor_tensor(
                    prod,
                    x_tile.ap(((2050, 128), (1, 128), (1, 3)), offset=w),
                    w_psum.ap(((3, 128), (0, 128), (1, 3)), offset=0),
                    nl.multiply,
                )
                nisa.tensor_reduce(y_tile[0:128, w : w + 128], nl.add, prod, axis=2)
            nisa.dma_copy(y[n, c * 128 : c * 128 + 128, 0:2048], y_tile)
    return y
