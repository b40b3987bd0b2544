// SPDX-License-Identifier: MIT OR GPL-2.0
//
// The rule table: the first matching rule applies.

#pragma once

static __always_inline int fits_prefix(const __u32 *address, const __u32 *prefix, const __u32 *mask)
{
	return (address[0] & mask[0]) == prefix[0] && (address[1] & mask[1]) == prefix[1] &&
	       (address[2] & mask[2]) == prefix[2] && (address[3] & mask[3]) == prefix[3];
}

static __always_inline int fits_ports(__u16 port, const __u16 *range)
{
	return port >= range[0] && port <= range[1];
}

static __always_inline int is_ipv4(const __u32 *address)
{
	return !address[0] && !address[1] && address[2] == bpf_htonl(0xffff);
}

static __always_inline int is_loopback(const __u32 *address)
{
	if (is_ipv4(address))
		return (address[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	return !address[0] && !address[1] && !address[2] && address[3] == bpf_htonl(1);
}

// A connection from this host to itself: a loopback address, or equal addresses at both ends.
static __always_inline int is_within_host(const struct flow *flow)
{
	if (is_loopback(flow->local) || is_loopback(flow->remote))
		return 1;
	return flow->local[0] == flow->remote[0] && flow->local[1] == flow->remote[1] &&
	       flow->local[2] == flow->remote[2] && flow->local[3] == flow->remote[3];
}

// Whether a rule fits. A global function, which verifiers check by itself, once, and not for each rule.
__noinline int try_rule(const struct flow *flow, struct wish *wish, __u32 number, int within_host)
{
	struct rule *rule = bpf_map_lookup_elem(&rules, &number);

	if (!flow || !wish || !rule || (within_host && !rule->within_host))
		return NOTHING_FITS;
	if (!fits_ports(flow->local_port, rule->local_ports) || !fits_ports(flow->remote_port, rule->remote_ports))
		return NOTHING_FITS;
	if (!fits_prefix(flow->local, rule->local, rule->local_mask) || !fits_prefix(flow->remote, rule->remote, rule->remote_mask))
		return NOTHING_FITS;
	*wish = rule->wish;
	return rule->needs_owner ? NEEDS_OWNER : FITS;
}

// Finds the first matching rule.
__noinline int decide(const struct flow *flow, struct wish *wish)
{
	__u32 zero = 0, table, i, number, within_host;
	__u32 *in_use, *count;

	if (!flow || !wish)
		return NOTHING_FITS;
	in_use = bpf_map_lookup_elem(&table_in_use, &zero);
	if (!in_use)
		return NOTHING_FITS;
	table = *in_use & 1;
	count = bpf_map_lookup_elem(&rule_counts, &table);
	if (!count)
		return NOTHING_FITS;
	number = *count;
	within_host = is_within_host(flow);
	for (i = 0; i < MAX_RULES; i++) {
		int verdict;

		if (i >= number)
			break;
		verdict = try_rule(flow, wish, table * MAX_RULES + i, within_host);
		if (verdict != NOTHING_FITS)
			return verdict;
	}
	return NOTHING_FITS;
}
