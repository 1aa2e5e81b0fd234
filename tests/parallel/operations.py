"""A script that tries every operation, whatever has started its ranks."""

# Rows differ by rank; sums are exact.
EVERY_OPERATION = """
    import numpy, covey
    covey.init()
    rank, size = covey.rank(), covey.size()

    def check(actual, wanted, what):
        assert actual.dtype == wanted.dtype and actual.shape == wanted.shape, (what, actual.shape)
        assert (actual == wanted).all(), (what, actual, wanted)

    def of(r, count, dtype="float32"):
        return (numpy.arange(count) % 13 + r).astype(dtype)

    def part(whole, i, n):
        rows = [len(whole) // n + (r < len(whole) % n) for r in range(n)]
        return whole[sum(rows[:i]):sum(rows[:i + 1])]

    for turn in range(3):  # the first agrees, the others run at once
        for count in (0, 1, 7, 1000, 300_001 if size < 4 else 20_011):
            for dtype in ("float32", "float64", "int64"):
                all_ranks = [of(r, count, dtype) for r in range(size)]
                total, name = sum(all_ranks), f"{count}.{dtype}"
                mine = all_ranks[rank]
                check(covey.allreduce(mine, op=covey.Sum, name=name), total, "allreduce")
                check(covey.allreduce(mine, op=covey.Max), all_ranks[-1], "max")
                for one in covey.grouped_allreduce([mine, mine], op=covey.Sum, name=name):
                    check(one, total, "grouped")
                check(covey.broadcast(mine, size - 1, name=name), all_ranks[-1], "broadcast")
                check(covey.allgather(mine[rank:], name=name),
                      numpy.concatenate([all_ranks[r][r:] for r in range(size)]), "allgather")
                check(covey.gather(mine[rank:], size - 1, name=name),
                      numpy.concatenate([all_ranks[r][r:] for r in range(size)])
                      [: None if rank == size - 1 else 0], "gather")
                check(covey.reducescatter(mine, name, covey.Sum), part(total, rank, size), "parts")
                splits = [count // (2 * size) + (r == rank) * (count > 0) for r in range(size)]
                sent = [[count // (2 * size) + (t == r) * (count > 0) for t in range(size)]
                        for r in range(size)]
                rows, came = covey.alltoall(mine, splits, name=name)
                pieces = [all_ranks[r][sum(sent[r][:rank]):sum(sent[r][:rank + 1])]
                          for r in range(size)]
                check(rows, numpy.concatenate(pieces), "alltoall")
                assert came.tolist() == [len(piece) for piece in pieces]
                if dtype != "int64":
                    before, after = (rank - 1) % size, (rank + 1) % size
                    near = mine if size == 1 else (mine + all_ranks[before]) * mine.dtype.type(0.5)
                    check(covey.neighbor_allreduce(mine, 0.5, {before: 0.5}, [after], name=name)
                          if size > 1 else covey.neighbor_allreduce(mine, topology="ring"),
                          near, "neighbors")
                    near = covey.neighbor_allreduce(mine, topology="one_peer", round=turn)
                    hop = (rank - 2 ** (turn % max(1, (size - 1).bit_length()))) % size
                    check(near, (mine + all_ranks[hop]) * mine.dtype.type(0.5)
                          if hop != rank else mine, "one_peer")
                    peer = rank ^ 1 if rank ^ 1 < size else None
                    other = mine if peer is None else all_ranks[peer]
                    wanted = (mine + other) * mine.dtype.type(0.5)
                    check(covey.pair_average(mine, peer, name=name), wanted, "pair")
    handles = [covey.allreduce_async(of(rank, i), op=covey.Sum, name=f"many.{i}")
               for i in (range(100) if rank else reversed(range(100)))]
    for i, handle in zip(range(100) if rank else reversed(range(100)), handles):
        check(handle.wait(), sum(of(r, i) for r in range(size)), "many")
    group = covey.group(sorted({0, size - 1}))
    if size > 1 and group.included():
        total = of(0, 50) + of(size - 1, 50)
        check(covey.allreduce(of(rank, 50), op=covey.Sum, name="g", group=group), total, "group")
        check(covey.reducescatter(of(rank, 50), "g", covey.Sum, group),
              part(total, group.rank(), 2), "group")
    alone = covey.group([rank])
    check(covey.allreduce(of(rank, 5), name="alone", group=alone), of(rank, 5), "alone")
    assert covey.allgather_object({"rank": rank})[size - 1] == {"rank": size - 1}
    try:
        covey.allreduce(numpy.ones(3 + rank), name="shapes")
    except covey.Mismatch as error:
        assert "rank" in str(error)
    else:
        assert size == 1, "shapes that differ were not refused"
    try:
        receivers = [] if rank == 0 else None
        covey.neighbor_allreduce(of(rank, 9), 0.5, {(rank - 1) % size: 0.5}, receivers, name="odd")
    except covey.Mismatch as error:
        text = "takes from itself" if size == 1 else "takes from rank 0, which does not send to"
        assert text in str(error), error
    else:
        assert False, "a rank that does not send was not noticed"
    covey.barrier()
    assert covey.join() in range(size)
    covey.shutdown()
    print("fine", rank, flush=True)
"""
