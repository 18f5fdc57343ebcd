"""Collectives read from XLA's text, on texts short enough to count by eye."""

import pytest

from workloads.preflight import hlo

LOOP = """HloModule loop

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%body (carried: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %carried = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %round = s32[]{:T(128)} get-tuple-element(%carried), index=0
  %rows = f32[8,128]{1,0:T(8,128)} get-tuple-element(%carried), index=1
  %one = s32[]{:T(128)} constant(1)
  %next = s32[]{:T(128)} add(%round, %one)
  %all = f32[8,128]{1,0:T(8,128)} all-reduce(%rows), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%add
  ROOT %made = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%next, %all)
}

%condition (tested: (s32[], f32[8,128])) -> pred[] {
  %tested = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %counter = s32[]{:T(128)} get-tuple-element(%tested), index=0
  %limit = s32[]{:T(128)} constant(8)
  ROOT %less = pred[]{:T(512)} compare(%counter, %limit), direction=LT
}

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %zero = s32[]{:T(128)} constant(3)
  %start = s32[]{:T(128)S(6)} copy(%zero)
  %first = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%start, %x)
  %while.1 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%first), condition=%condition, body=%body
  ROOT %out = f32[8,128]{1,0:T(8,128)} get-tuple-element(%while.1), index=1
}
"""  # noqa: E501 # as XLA writes it


def entry(*lines):
    inputs = "  %a = bf16[16,128]{1,0:T(8,128)(2,1)S(1)} parameter(0)\n  %b = s32[4] parameter(1)\n"
    body = "".join(f"  {line}\n" for line in lines)
    return f"HloModule one\n\nENTRY %main (a: bf16[16,128]) -> bf16[16,128] {{\n{inputs}{body}}}\n"


def found(text, slices=1):
    made, unknown = hlo.collectives(text, slices=slices)
    return [(one.kind, one.group, one.count, one.payload_bytes) for one in made], unknown


def test_a_collective_in_a_loop_counts_for_each_round():
    """From 3 up to 8."""
    assert found(LOOP) == ([("all-reduce", 2, 5, 5 * 8 * 128 * 4)], 0)


@pytest.mark.parametrize(
    ("declared", "otherwise"),
    [("direction=LT", "direction=NE"), ("constant(3)", "parameter(1)"), ("constant(8)", "iota(8)")],
)
def test_a_loop_that_does_not_count_to_a_constant_is_said_to_be_unknown(declared, otherwise):
    assert found(LOOP.replace(declared, otherwise)) == ([("all-reduce", 2, 1, 8 * 128 * 4)], 1)


def test_a_loop_that_sends_nothing_is_no_matter():
    silent = LOOP.replace(" all-reduce(", " negate(").replace("direction=LT", "direction=NE")
    assert found(silent) == ([], 0)


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("replica_groups={{0,1,2,3}}", 4),
        ("replica_groups={{0,1},{2,3}}", 2),
        ("replica_groups=[2,8]<=[16]", 8),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", 2),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2] {'axis_0','axis_2'}", 8),
    ],
)
def test_a_group_is_read_in_each_of_xlas_ways(groups, size):
    text = entry(f"ROOT %r = bf16[16,128] all-reduce(%a), channel_id=1, {groups}, to_apply=%add")
    assert found(text) == ([("all-reduce", size, 1, 16 * 128 * 2)], 0)


def test_an_all_gather_is_counted_by_what_comes_out_and_an_asynchronous_one_once():
    text = entry(
        "%s = (bf16[16,128], bf16[64,128]) all-gather-start(%a), replica_groups={{0,1,2,3}}",
        "ROOT %r = bf16[64,128] all-gather-done(%s)",
    )
    assert found(text) == ([("all-gather", 4, 1, 64 * 128 * 2)], 0)


def test_what_crosses_slices_is_counted_where_it_is_sent_and_no_other_host_transfer():
    told = "is_host_transfer=true, frontend_attributes={_xla_megascale_transfer_type"
    text = entry(
        f'%s = (bf16[16,128], u32[], token[]) send(%a, %t), channel_id=2, {told}="ALL_REDUCE"}}',
        f'%v = (bf16[16,128], u32[], token[]) recv(%t), channel_id=1, {told}="ALL_REDUCE"}}',
        "%o = (s32[4], u32[], token[]) send(%b, %t), channel_id=3, is_host_transfer=true",
    )
    assert found(text, slices=2) == ([("dcn", 2, 1, 16 * 128 * 2)], 0)


def test_several_arrays_in_one_collective_count_together():
    text = entry(
        "ROOT %r = (bf16[16,128], s32[4]) all-reduce(%a, /*index=1*/%b), replica_groups=[1,4]<=[4]"
    )
    assert found(text) == ([("all-reduce", 4, 1, 16 * 128 * 2 + 4 * 4)], 0)
