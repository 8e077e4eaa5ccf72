import jax
import numpy as np
import pytest

import isvi
from isvi.data import grouped
from isvi.data.groups.packs import Pack, each_row, piece_length

UNEQUAL = np.random.default_rng(0).integers(1, 30, size=200)
HUGE = np.append(UNEQUAL, 10_000)


def of_sizes(sizes) -> isvi.data.Grouped:
    """Rows that know their group, in random order."""
    group = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return grouped({"group": group, "g": group, "y": np.arange(len(group))}, by="group")


@pytest.mark.parametrize("batch_size", [50, 500, 10**6])
@pytest.mark.parametrize("sizes", [UNEQUAL, HUGE, np.full(64, 7), np.ones(99, int)], ids=str)
def test_every_row_is_there_once_with_its_own_group_and_groups_are_whole(sizes, batch_size):
    data = of_sizes(sizes)
    packs = data.cut(batch_size, seed=3)
    pack = jax.device_get(packs.full)
    assert sorted(pack.rows["y"][pack.there].tolist()) == list(range(sizes.sum()))
    place = np.arange(pack.number.shape[1])[None].repeat(packs.count, 0) if pack.group is None else pack.group
    number = np.take_along_axis(pack.number, place, axis=1)[..., None]
    assert (np.broadcast_to(number, pack.there.shape) == pack.rows["g"])[pack.there].all()
    assert sorted(pack.number[pack.number >= 0].tolist()) == list(range(len(sizes)))
    assert packs.size == sizes.sum()


def test_groups_of_very_unequal_sizes_are_not_padded_to_the_longest():
    """Padded, 201 groups of 10,000 rows; here at most two packs of twice the longest, and pieces half empty at most."""
    packs = of_sizes(HUGE).cut(100)
    assert packs.full.there.size < 4 * HUGE.sum()
    assert piece_length(np.full(10, 7)) == 7


def test_mini_batches_hold_about_the_rows_that_were_asked_for():
    packs = of_sizes(UNEQUAL).cut(300, seed=0)
    rows = np.asarray(packs.full.there).sum(axis=(1, 2))
    assert packs.num_batches == -(-UNEQUAL.sum() // 300)
    assert rows.max() - rows.min() <= 2 * UNEQUAL.max()


def test_equal_groups_need_no_putting_together():
    assert of_sizes(np.full(64, 7)).cut(70).full.group is None


def test_the_same_seed_gives_the_same_packs_and_another_one_others():
    numbers = [np.asarray(of_sizes(UNEQUAL).cut(300, seed=seed).full.number) for seed in (0, 0, 1)]
    assert (numbers[0] == numbers[1]).all()
    assert (numbers[0] != numbers[2]).any()


def test_names_are_labels_and_chosen_groups_are_a_pack():
    data = grouped({"school": ["b", "a", "b", "c"], "y": [1.0, 2.0, 3.0, 4.0]}, by="school")
    assert data.labels.tolist() == ["a", "b", "c"]
    assert data.numbers(["c", "zz", np.str_("b")]).tolist() == [2, -1, 1]
    pack = data.pack(np.array([2, 1]))
    sums = np.where(pack.there, pack.rows["y"], 0).sum(axis=1)
    of_group = np.arange(2) if pack.group is None else np.asarray(pack.group)
    assert pack.number.tolist() == [2, 1]
    assert [sums[of_group == place].sum() for place in range(2)] == [4.0, 4.0]
    assert pack.there.sum() == 3


def test_data_frames_and_tuples():
    import pandas

    frame = pandas.DataFrame({"school": ["x", "y", "x"], "y": [1.0, 2.0, 3.0]})
    assert sorted(grouped(frame, by="school").arrays) == ["y"]
    assert grouped((np.ones(3), np.zeros((3, 2))), by=[5, 6, 5]).sizes.tolist() == [2, 1]


def test_rows_in_no_groups_are_a_group_each():
    pack = each_row({"y": np.arange(5.0)})
    assert isinstance(pack, Pack)
    assert pack.number.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.array([1.0, np.nan, 2.0]), "row 1 has no group"),
        (np.array([0, 3, -1]), "row 2 has no group"),
        (np.array(["a", None, "b"], object), "row 1 has no group"),
        (np.array(["a", 3, "b"], object), "a mixture"),
        (np.zeros((3, 2)), "one value per row"),
    ],
)
def test_a_row_without_a_group_is_an_error_that_says_which(column, message):
    with pytest.raises(isvi.DataError, match=message):
        grouped({"school": column, "y": np.ones(3)}, by="school")


def test_columns_that_are_not_there():
    with pytest.raises(isvi.DataError, match="no column 'school'"):
        grouped({"y": np.ones(3)}, by="school")
    with pytest.raises(isvi.DataError, match="it is a ndarray"):
        grouped(np.ones(3), by="school")
    with pytest.raises(isvi.DataError, match="no column beside"):
        grouped({"school": np.ones(3)}, by="school")
