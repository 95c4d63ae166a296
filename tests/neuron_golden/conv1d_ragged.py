import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def conv1d_ragged(x, weight, bias):
    """x[2, 200, 64] float32, weight[200, 3] float32, bias[200] float32 -> y[2, 200, 64] float32."""
    y = nl.ndarray((2, 200, 64), nl.float32, buffer=nl.shared_hbm)
    for i_n in range(2):
        for i_c_0 in range(2):
            padded_sbuf = nl.ndarray((128, 66), nl.float32, buffer=nl.sbuf)
            biased_sbuf = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
            y_sbuf = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
            bias_sbuf = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
            weight_sbuf = nl.ndarray((128, 3), nl.float32, buffer=nl.sbuf)
            # pad
            row_stop = min(128, 200 - i_c_0 * 128)
            nisa.memset(padded_sbuf[0:row_stop, 0:1], 0.0, engine=nisa.gpsimd_engine)
            nisa.memset(padded_sbuf[0:row_stop, 65:66], 0.0, engine=nisa.gpsimd_engine)
            nisa.dma_copy(
                padded_sbuf[0:row_stop, 1:65], x[i_n, i_c_0 * 128 : i_c_0 * 128 + row_stop, 0:64]
            )
            # bias_trn.sbuf
            nisa.dma_copy(
                bias_sbuf[0:row_stop, 0:1], bias.ap([[1, row_stop], [1, 1]], offset=i_c_0 * 128)
            )
            # weight_trn.sbuf
            nisa.dma_copy(
                weight_sbuf[0:row_stop, 0:3], weight[i_c_0 * 128 : i_c_0 * 128 + row_stop, 0:3]
            )
            for i_f in range(3):
                # conv
                if i_f == 0:
                    nisa.activation(
                        biased_sbuf[0:row_stop, 0:64],
                        nl.copy,
                        padded_sbuf[0:row_stop, i_f : i_f + 64],
                        bias=bias_sbuf[0:row_stop, 0:1],
                        scale=weight_sbuf[0:row_stop, i_f : i_f + 1],
                    )
                else:
                    nisa.scalar_tensor_tensor(
                        biased_sbuf[0:row_stop, 0:64],
                        padded_sbuf[0:row_stop, i_f : i_f + 64],
                        nl.multiply,
                        weight_sbuf[0:row_stop, i_f : i_f + 1],
                        nl.add,
                        biased_sbuf[0:row_stop, 0:64],
                    )
            # relu
            nisa.tensor_scalar(
                y_sbuf[0:row_stop, 0:64], biased_sbuf[0:row_stop, 0:64], nl.maximum, 0.0
            )
            # y_trn.sbuf
            nisa.dma_copy(
                y[i_n, i_c_0 * 128 : i_c_0 * 128 + row_stop, 0:64], y_sbuf[0:row_stop, 0:64]
            )
    return y
