import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def matmul_bias_n(a, b, bias):
    """a[256, 256] float32, b[256, 600] float32, bias[600] float32 -> y[256, 600] float32."""
    y = nl.ndarray((256, 600), nl.float32, buffer=nl.shared_hbm)
    ones = nl.ndarray((1, 128), nl.float32, buffer=nl.sbuf)
    nisa.memset(ones, 1.0)
    for i_m_0 in range(2):
        for i_n_0 in range(2):
            biased_psum = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
            y_sbuf = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
            bias_sbuf = nl.ndarray((1, 512), nl.float32, buffer=nl.sbuf)
            # bias_trn.sbuf
            ax0_stop = min(512, 600 - i_n_0 * 512)
            nisa.dma_copy(bias_sbuf[0:1, 0:ax0_stop], bias[i_n_0 * 512 : i_n_0 * 512 + ax0_stop])
            for i_k_0 in range(2):
                a_sbuf = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
                b_sbuf = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
                # a_trn.sbuf
                nisa.dma_copy(
                    a_sbuf, a[i_k_0 * 128 : i_k_0 * 128 + 128, i_m_0 * 128 : i_m_0 * 128 + 128]
                )
                # b_trn.sbuf
                nisa.dma_copy(
                    b_sbuf[0:128, 0:ax0_stop],
                    b[i_k_0 * 128 : i_k_0 * 128 + 128, i_n_0 * 512 : i_n_0 * 512 + ax0_stop],
                )
                # matmul
                if i_k_0 == 0:
                    nisa.nc_matmul(
                        biased_psum[0:128, 0:ax0_stop],
                        ones[0:1, 0:128],
                        bias_sbuf[0:1, 0:ax0_stop],
                        accumulate=False,
                    )
                nisa.nc_matmul(
                    biased_psum[0:128, 0:ax0_stop],
                    a_sbuf,
                    b_sbuf[0:128, 0:ax0_stop],
                    accumulate=True,
                )
            # relu
            nisa.tensor_scalar(
                y_sbuf[0:128, 0:ax0_stop], biased_psum[0:128, 0:ax0_stop], nl.maximum, 0.0
            )
            # y_trn.sbuf
            nisa.dma_copy(
                y[i_m_0 * 128 : i_m_0 * 128 + 128, i_n_0 * 512 : i_n_0 * 512 + ax0_stop],
                y_sbuf[0:128, 0:ax0_stop],
            )
    return y
