import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def matmul_bias_m(a, b, bias):
    """a[300, 200] float32, b[300, 512] float32, bias[200] float32 -> y[200, 512] float32."""
    y = nl.ndarray((200, 512), nl.float32, buffer=nl.shared_hbm)
    ones = nl.ndarray((1, 512), nl.float32, buffer=nl.sbuf)
    nisa.memset(ones, 1.0)
    for i_m_0 in range(2):
        biased_psum = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        y_sbuf = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        bias_sbuf = nl.ndarray((1, 128), nl.float32, buffer=nl.sbuf)
        # bias_trn.sbuf
        ax0_stop = min(128, 200 - i_m_0 * 128)
        nisa.dma_copy(bias_sbuf[0:1, 0:ax0_stop], bias[i_m_0 * 128 : i_m_0 * 128 + ax0_stop])
        for i_k_0 in range(3):
            a_sbuf = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
            b_sbuf = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
            # a_trn.sbuf
            row_stop = min(128, 300 - i_k_0 * 128)
            nisa.dma_copy(
                a_sbuf[0:row_stop, 0:ax0_stop],
                a[i_k_0 * 128 : i_k_0 * 128 + row_stop, i_m_0 * 128 : i_m_0 * 128 + ax0_stop],
            )
            # b_trn.sbuf
            nisa.dma_copy(b_sbuf[0:row_stop, 0:512], b[i_k_0 * 128 : i_k_0 * 128 + row_stop, 0:512])
            # matmul
            if i_k_0 == 0:
                nisa.nc_matmul(
                    biased_psum[0:ax0_stop, 0:512],
                    bias_sbuf[0:1, 0:ax0_stop],
                    ones[0:1, 0:512],
                    accumulate=False,
                )
            nisa.nc_matmul(
                biased_psum[0:ax0_stop, 0:512],
                a_sbuf[0:row_stop, 0:ax0_stop],
                b_sbuf[0:row_stop, 0:512],
                accumulate=True,
            )
        # relu
        nisa.tensor_scalar(
            y_sbuf[0:ax0_stop, 0:512], biased_psum[0:ax0_stop, 0:512], nl.maximum, 0.0
        )
        # y_trn.sbuf
        nisa.dma_copy(y[i_m_0 * 128 : i_m_0 * 128 + ax0_stop, 0:512], y_sbuf[0:ax0_stop, 0:512])
    return y
