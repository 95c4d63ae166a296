import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def conv1d_causal_silu(x, weight, bias):
    """x[1, 128, 64] float32, weight[128, 4] float32, bias[128] float32 -> y[1, 128, 64] float32."""
    y = nl.ndarray((1, 128, 64), nl.float32, buffer=nl.shared_hbm)
    padded_sbuf = nl.ndarray((128, 67), nl.float32, buffer=nl.sbuf)
    biased_sbuf = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
    y_sbuf = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
    bias_sbuf = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    weight_sbuf = nl.ndarray((128, 4), nl.float32, buffer=nl.sbuf)
    # pad
    nisa.memset(padded_sbuf[0:128, 0:3], 0.0, engine=nisa.gpsimd_engine)
    nisa.dma_copy(padded_sbuf[0:128, 3:67], x[0, 0:128, 0:64])
    # bias_trn.sbuf
    nisa.dma_copy(bias_sbuf, bias.ap([[1, 128], [1, 1]], offset=0))
    # weight_trn.sbuf
    nisa.dma_copy(weight_sbuf, weight)
    for i_f in range(4):
        # conv
        if i_f == 0:
            nisa.activation(
                biased_sbuf,
                nl.copy,
                padded_sbuf[0:128, i_f : i_f + 64],
                bias=bias_sbuf,
                scale=weight_sbuf[0:128, i_f : i_f + 1],
            )
        else:
            nisa.scalar_tensor_tensor(
                biased_sbuf,
                padded_sbuf[0:128, i_f : i_f + 64],
                nl.multiply,
                weight_sbuf[0:128, i_f : i_f + 1],
                nl.add,
                biased_sbuf,
            )
    # silu
    nisa.activation(y_sbuf, nl.silu, biased_sbuf)
    # y_trn.sbuf
    nisa.dma_copy(y[0, 0:128, 0:64], y_sbuf)
    return y
