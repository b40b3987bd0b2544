// SPDX-License-Identifier: MIT OR GPL-2.0
//
// User timeouts by policy. `new_connections`, attached to a cgroup, sets them at the handshake; `open_connections`, an iterator over the
// TCP sockets of a network namespace, sets them on connections that are already open; user space runs it in each namespace that it serves.
//
// The policy is a table of rules over addresses and ports; the first matching rule applies. A rule may also ask for the process, the
// user or the cgroup: the program then reports the connection to user space, whose answer arrives in `decisions` and takes effect at the
// next pass of the iterator. Until then the connection keeps the kernel's timeout.
//
// A timeout that the application has set is left alone, unless the rule says `replace`.

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

// --- For the test that the kernel has the table of the policy ---

// The packet holds a `struct ends`. Returns the verdict in bits 0 to 7 and the rule's number above.
SEC("classifier")
int decide_for_test(struct __sk_buff *skb)
{
	struct ends ends = {};
	struct wish wish = {};
	int verdict;

	if (bpf_skb_load_bytes(skb, 0, &ends, sizeof(ends)))
		return -1;
	verdict = decide(&ends, &wish);
	return verdict | (int)(wish.rule << 8);
}
