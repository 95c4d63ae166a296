import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def conv1d_valid(x, weight):
    """x[1, 128, 64] float32, weight[128, 4] float32 -> y[1, 128, 61] float32."""
    y = nl.ndarray((1, 128, 61), nl.float32, buffer=nl.shared_hbm)
    y_sbuf = nl.ndarray((128, 61), nl.float32, buffer=nl.sbuf)
    x_sbuf = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
    weight_sbuf = nl.ndarray((128, 4), nl.float32, buffer=nl.sbuf)
    # x_trn.sbuf
    nisa.dma_copy(x_sbuf, x[0, 0:128, 0:64])
    # weight_trn.sbuf
    nisa.dma_copy(weight_sbuf, weight)
    for i_f in range(4):
        # conv
        if i_f == 0:
            nisa.activation(
                y_sbuf,
                nl.copy,
                x_sbuf[0:128, i_f : i_f + 61],
                scale=weight_sbuf[0:128, i_f : i_f + 1],
            )
        else:
            nisa.scalar_tensor_tensor(
                y_sbuf,
                x_sbuf[0:128, i_f : i_f + 61],
                nl.multiply,
                weight_sbuf[0:128, i_f : i_f + 1],
                nl.add,
                y_sbuf,
            )
    # y_trn.sbuf
    nisa.dma_copy(y[0, 0:128, 0:61], y_sbuf)
    return y
