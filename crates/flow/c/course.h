// Whether a packet for a mobile host is diverted: by the course that the controller has ordered for the host, and by a rule for the packet's
// connection. The gateway asks the same function in its programs (crates/gatewayd/bpf/gateway.bpf.c) and, at routers of the simulator, in
// the process (crates/gateway/src/daemon/filter.rs). Nothing here depends on the flow path.

#pragma once

#include "types.h"

// Courses. `src/course.rs` has them as an enumeration.
#define PASSING 0
#define DIVERT 1
#define DIVERT_TCP 2 // TCP packets and their fragments only
#define DIVERT_CHOSEN 3 // packets that a rule diverts, and nothing else

// Bits of the verdict of a rule for single connections. A shell has others for its own use.
#define RULE_FITS 0x8
#define RULE_DIVERTS 0x10 // packets for a mobile host that is away are diverted; else they pass

// `rule` is the verdict of the first matching rule; 0 if there is none.
INLINE int diverts(u32 course, u32 rule, int is_tcp)
{
	if (course == PASSING)
		return 0;
	if (rule & RULE_FITS)
		return !!(rule & RULE_DIVERTS);
	return course == DIVERT || (course == DIVERT_TCP && is_tcp);
}
