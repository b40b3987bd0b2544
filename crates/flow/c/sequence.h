// Sequence numbers (RFC 9293 section 3.4), timestamps (RFC 7323 section 5.2) and times.

#pragma once

#include "types.h"

INLINE int before(u32 a, u32 b)
{
	return (int)(a - b) < 0;
}

INLINE u32 saturating_since(u32 a, u32 b)
{
	return before(a, b) ? 0 : a - b;
}

INLINE u32 later(u32 a, u32 b)
{
	return before(a, b) ? b : a;
}

// Both directions may run at once, so an earlier packet may be handled later.
INLINE u64 since(u64 now, u64 then)
{
	return now > then ? now - then : 0;
}
