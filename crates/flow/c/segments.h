// Where segments begin and end in a sequence space, in bounded memory: the newest runs of segments of one size. A bulk transfer is one
// run.

#pragma once

#include "half.h"

// The newest run, and the `n`th one before it.
INLINE struct run run_at(const struct half *half, u32 n)
{
	if (n)
		return half->rest->older_runs[n - 1];
	return (struct run){ half->acks->start, half->core->end, half->core->size };
}

// Whether the last of the segments in `len` bytes is shorter than `size`.
INLINE int is_short(u32 len, u32 size)
{
	return len != size && len % size;
}

// Bytes from `start` to `end` pass, in segments of `size` bytes.
INLINE void note_run(const struct half *half, u32 start, u32 end, u32 size)
{
	struct half_core *core = half->core;
	struct run *older = half->rest->older_runs;
	u32 len = core->runs_len;

	if (len) {
		u32 from = start;

		if (!before(core->end, end))
			return;
		start = later(start, core->end);
		if (start == core->end && size == core->size && !(core->flags & HALF_SHORT)) {
			if (is_short(end - start, size))
				core->flags |= HALF_SHORT;
			if (from == start) {
				core->flags |= HALF_COUNTED;
				grow_end(half, end);
			} else {
				set_end(half, end);
			}
			return;
		}
	}
	UNROLL
	for (int n = OLDER_RUNS - 1; n > 0; n--)
		older[n] = older[n - 1];
	older[0] = run_at(half, 0);
	half->acks->start = start;
	core->size = size;
	core->runs_len = len >= MOST_RUNS ? MOST_RUNS : len + 1;
	set_flag(half, HALF_SHORT, is_short(end - start, size));
	set_end(half, end);
}

// Where the last `wanted` whole segments before `acked` begin. A gap between two runs counts as one segment. Returns whether that is
// known.
INLINE int before_last(const struct half *half, u32 acked, u32 wanted, u32 *limit)
{
	u32 later_start = 0;
	int has_later = 0;

	UNROLL
	for (int n = 0; n < MOST_RUNS; n++) {
		if (n >= half->core->runs_len)
			continue;
		struct run run = run_at(half, n);

		if (!before(run.start, acked))
			continue;
		if (has_later && later_start != run.end) {
			wanted--;
			if (!wanted) {
				*limit = run.end;
				return 1;
			}
		}
		u32 size = run.size ? run.size : 1;
		u32 whole = before(acked, run.end) ? (acked - run.start) / size
						    : (run.end - run.start + size - 1) / size;

		if (whole >= wanted) {
			*limit = run.start + (whole - wanted) * size;
			return 1;
		}
		wanted -= whole;
		later_start = run.start;
		has_later = 1;
	}
	return 0;
}

// Where the last byte ended. There must be a run.
INLINE u32 runs_end(const struct half *half)
{
	return half->core->end;
}
