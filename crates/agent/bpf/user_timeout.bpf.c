// SPDX-License-Identifier: MIT OR GPL-2.0
//
// User timeouts by policy, for connections as they are made (`new_connections`, attached to a cgroup) and for those that are open
// already (`open_connections`, an iterator over the TCP sockets of a network namespace).
//
// The policy is a table of rules that hold addresses and ports alone; the first that fits decides. Where a rule asks for more (the
// process, the user, the cgroup), user space is told of the connection, and its answer comes through `decisions`, at the next pass
// of the iterator. Until then the connection is as the kernel made it. `Rule`, `Wish` and the others are the Rust twins of what is
// here (src/user_timeout/kernel.rs).
//
// A timeout that the application has set itself is its own affair, unless the rule says otherwise.

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#include "user_timeout/kernel_types.h"
#include "user_timeout/state.h"
#include "user_timeout/rules.h"
#include "user_timeout/timeouts.h"
#include "user_timeout/new_connections.h"
#include "user_timeout/open_connections.h"

// --- For the test that the rules say here what they say in user space ---

// A packet that holds a `struct flow`; it returns the verdict, and the rule in the bits above.
SEC("classifier")
int decide_for_test(struct __sk_buff *skb)
{
	struct flow flow = {};
	struct wish wish = {};
	int verdict;

	if (bpf_skb_load_bytes(skb, 0, &flow, sizeof(flow)))
		return -1;
	verdict = decide(&flow, &wish);
	return verdict | (int)(wish.rule << 8);
}
