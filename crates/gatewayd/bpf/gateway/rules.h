// Rules for single connections, `[[flow]]` of the configuration: the first matching one applies, and where none matches the mode of the
// mobile host does. The daemon finds the rule of a connection by the same function (crates/flow/c/selector.h).
//
// The treatment of a connection's ACKs is looked up once, when the connection is added to the flow table; whether it is split is looked up
// once, when it begins. Whether a packet is diverted is looked up for each packet while its mobile host is away: these packets go through
// user space in any case.

#pragma once

#include "ip.h"
#include "state.h"

// Set when the programs are loaded, as `flow_rules`.
const volatile u32 flow_rules_len = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_FLOW_RULES);
	__type(key, u32);
	__type(value, struct flow_rule);
} flow_rules SEC(".maps");

// A global function, which verifiers check by itself, once, and not for each rule.
__attribute__((noinline)) int try_flow_rule(const struct ends *ends, u32 number)
{
	struct flow_rule *rule = bpf_map_lookup_elem(&flow_rules, &number);

	if (!ends || !rule || !selects(&rule->selector, ends, 0))
		return 0;
	return rule->verdict;
}

// The verdict of the first matching rule; 0 if there is none.
INLINE u32 find_flow_rule(const struct ends *ends)
{
#pragma clang loop unroll(disable)
	for (u32 number = 0; number < MOST_FLOW_RULES; number++) {
		if (number >= flow_rules_len)
			break;
		u32 verdict = try_flow_rule(ends, number);

		if (verdict)
			return verdict;
	}
	return 0;
}

// The number of the link of a flow.
static __attribute__((noinline)) u32 link_of(const struct key *key)
{
	struct ends ends;

	__builtin_memcpy(ends.local, key->local, sizeof(ends.local));
	__builtin_memcpy(ends.remote, key->remote, sizeof(ends.remote));
	ends.local_port = bpf_ntohs(key->local_port);
	ends.remote_port = bpf_ntohs(key->remote_port);
	return find_flow_rule(&ends) & RULE_LINK;
}

// Reads the ends of a packet of TCP or UDP, whose *local* one is its source. A fragment has none. All is read into place: the frames of
// functions that call each other have 512 bytes together.
INLINE int read_ends(struct __sk_buff *skb, struct ends *ends)
{
	struct upper upper = {};

	if (read_upper(skb, rules.frame_len, &upper) != UPPER_WHOLE || (upper.protocol != IPPROTO_TCP && upper.protocol != IPPROTO_UDP))
		return 0;
	if (!read_ip_address(skb, rules.frame_len, ends->local, 0) || !read_ip_address(skb, rules.frame_len, ends->remote, 1))
		return 0;
	// Both ports, one after the other.
	if (bpf_skb_load_bytes(skb, upper.at, &ends->local_port, 4))
		return 0;
	ends->local_port = bpf_ntohs(ends->local_port);
	ends->remote_port = bpf_ntohs(ends->remote_port);
	return 1;
}

// The verdict of the first matching rule on a packet; 0 if there is none, or if its ports are not known.
static __attribute__((noinline)) u32 find_rule_of_packet(struct __sk_buff *skb, int direction)
{
	struct ends ends = {};

	if (!read_ends(skb, &ends))
		return 0;
	if (direction == INCOMING) {
		UNROLL
		for (int n = 0; n < 4; n++) {
			u32 word = ends.local[n];

			ends.local[n] = ends.remote[n];
			ends.remote[n] = word;
		}
		u16 port = ends.local_port;

		ends.local_port = ends.remote_port;
		ends.remote_port = port;
	}
	return find_flow_rule(&ends);
}
