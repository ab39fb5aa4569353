"""Where a bound that principals fill together is full, the principal who holds the most pays."""

import random

from toolcrib.machinery import Shares, room_for, share


def test_who_holds_the_most_loses_what_they_used_least_recently() -> None:
    shares: Shares[str, str] = Shares()
    for key, principal, size in [("a1", "a", 1), ("a2", "a", 1), ("b1", "b", 5), ("a3", "a", 1)]:
        shares.put(key, key.upper(), principal, size)
    assert (shares.get("a1"), shares.get("c1")) == ("A1", None)
    assert (list(shares), shares.size, shares.count("a"), shares.held("b")) == (["A2", "B1", "A3", "A1"], 8, 3, 5)
    assert [shares.drop(), shares.drop(), shares.drop(of="c")] == ["B1", "A2", None]
    shares.put("a3", "new", "a", 4)
    assert (list(shares.items()), shares.held("a"), shares.held("b")) == ([("a1", "A1"), ("a3", "new")], 5, 0)


def test_what_may_not_go_stays_and_the_next_one_pays() -> None:
    shares: Shares[int, int] = Shares()
    for number in range(6):
        shares.put(number, number, "a" if number < 4 else "b")
    assert [shares.drop(lambda number: number > 2) for _ in range(4)] == [3, 4, 5, None]
    assert shares.drop(lambda number: number > 0, of="a") == 1
    shares.pop(0), shares.pop(2)
    assert (shares.drop(), len(shares), shares.size) == (None, 0, 0)


def test_room_is_made_by_who_holds_more_and_never_by_who_holds_less() -> None:
    """Whatever is there: one who gets room took it from principals who hold no less than they do afterwards."""
    choose = random.Random(7)
    for _ in range(500):
        rows = [(n, choose.choice("abcd"), choose.randrange(1, 50), choose.random() < 0.8) for n in range(30)]
        size = choose.randrange(1, 120)
        asking = choose.choice("abcde")
        going = room_for(asking, size, rows, max_count=25, max_size=600)
        if going is None:
            continue
        left = [row for row in rows if row[0] not in going]
        assert len(left) < 25 and sum(row[2] for row in left) + size <= 600

        def weight(*rows: tuple[int, str, int, bool]) -> float:
            return sum(1 / 25 + row[2] / 600 for row in rows)

        own = weight((0, asking, size, True), *(row for row in left if row[1] == asking))
        for number in going:
            principal = rows[number][1]
            last = max(row for row in rows if row[0] in going and row[1] == principal)
            assert rows[number][3] and principal != asking
            assert weight(last, *(row for row in left if row[1] == principal)) >= own - 1e-9


def test_what_cannot_be_taken_back_leaves_half_of_the_rest_to_others() -> None:
    assert [share(10, 0), share(10, 5), share(10, 9), share(10, 10), share(1, 0)] == [5, 3, 1, 0, 1]
