"""What is asked of each program of the corpus, as named steps: `test_corpus.py` takes them.

`subject` holds what the steps of one program share: its schedules, fusions and compiled functions.
The other modules hold the steps, one subject each.

Each step was a test of its own, which fused every program anew. Where those tests are now:

===========================  =======================================================================
file                         steps
===========================  =======================================================================
test_accept                  all of `fusion`; `calls`: the_first_epilogue_may_be_named_alone,
                             one_by_one_..., every_way_..., trace_replays; `results`:
                             unfused_program_..., computes_the_same; `refusals`:
                             is_refused_or_computes_the_same; the rest is in `test_corpus.py`
test_refuse                  `results`: unfused_program_...; `refusals`: steps of the same names
test_after_decomposing       `decomposing`: both steps; `results`: is_right_after_decomposing
test_analyze                 `calls`: analyze_agrees_with_the_call, analyze_changes_nothing;
                             `refusals`: analyze_agrees_with_the_call
test_numerics                `numerics`: all four; `results`: exact_gives_the_same_bits,
                             a_maximum_selects_the_same_number
test_tails                   `placement`: all three
test_verify_check            `results`: certificate_holds, certificates_of_pairs_hold
===========================  =======================================================================

Three are on samples of the programs: ways to write a pair on each tenth, `analyze` of refusals on
each seventh, rendering at every level on two of each code. Commit f913567 has both forms.
"""
