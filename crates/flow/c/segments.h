// Where segments begin and end in a sequence space, in bounded memory: the newest runs of segments of one size. A bulk transfer is one
// run.

#pragma once

#include "sequence.h"
#include "state.h"

// Bytes from `start` to `end` pass, in segments of `size` bytes.
INLINE void note_run(struct half *half, u32 start, u32 end, u32 size)
{
	u32 len = half->runs_len;

	if (len) {
		struct run *last = &half->runs[0];

		if (!before(last->end, end))
			return;
		start = later(start, last->end);
		if (start == last->end && size == last->size && (last->end - last->start) % last->size == 0) {
			last->end = end;
			return;
		}
	}
	UNROLL
	for (int n = MOST_RUNS - 1; n > 0; n--)
		half->runs[n] = half->runs[n - 1];
	half->runs[0].start = start;
	half->runs[0].end = end;
	half->runs[0].size = size;
	half->runs_len = len >= MOST_RUNS ? MOST_RUNS : len + 1;
}

// Where the last `wanted` whole segments before `acked` begin. A gap between two runs counts as one segment. Returns whether that is
// known.
INLINE int before_last(const struct half *half, u32 acked, u32 wanted, u32 *limit)
{
	u32 later_start = 0;
	int has_later = 0;

	UNROLL
	for (int n = 0; n < MOST_RUNS; n++) {
		const struct run *run = &half->runs[n];

		if (n >= half->runs_len || !before(run->start, acked))
			continue;
		if (has_later && later_start != run->end) {
			wanted--;
			if (!wanted) {
				*limit = run->end;
				return 1;
			}
		}
		u32 size = run->size ? run->size : 1;
		u32 whole = before(acked, run->end) ? (acked - run->start) / size
						    : (run->end - run->start + size - 1) / size;

		if (whole >= wanted) {
			*limit = run->start + (whole - wanted) * size;
			return 1;
		}
		wanted -= whole;
		later_start = run->start;
		has_later = 1;
	}
	return 0;
}

// Where the last byte ended. There must be a run.
INLINE u32 runs_end(const struct half *half)
{
	return half->runs[0].end;
}
