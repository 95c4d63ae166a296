import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def row_sum(x):
    """x[200, 150] float32 -> y[200] float32."""
    y = nl.ndarray((200,), nl.float32, buffer=nl.shared_hbm)
    for i_m_0 in range(2):
        y_sbuf = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        for i_n_0 in range(3):
            x_sbuf = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
            # x_trn.sbuf
            row_stop = min(128, 200 - i_m_0 * 128)
            ax1_stop = min(64, 150 - i_n_0 * 64)
            nisa.dma_copy(
                x_sbuf[0:row_stop, 0:ax1_stop],
                x[i_m_0 * 128 : i_m_0 * 128 + row_stop, i_n_0 * 64 : i_n_0 * 64 + ax1_stop],
            )
            # reduce
            part = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(
                part[0:row_stop, 0:1], nl.add, x_sbuf[0:row_stop, 0:ax1_stop], axis=1
            )
            if i_n_0 == 0:
                nisa.tensor_copy(y_sbuf[0:row_stop, 0:1], part[0:row_stop, 0:1])
            else:
                nisa.tensor_scalar(
                    y_sbuf[0:row_stop, 0:1], y_sbuf[0:row_stop, 0:1], nl.add, part[0:row_stop, 0:1]
                )
        # y_trn.sbuf
        row_stop_2 = min(128, 200 - i_m_0 * 128)
        nisa.dma_copy(
            y.ap([[1, row_stop_2], [1, 1]], offset=i_m_0 * 128), y_sbuf[0:row_stop_2, 0:1]
        )
    return y
