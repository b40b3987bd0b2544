// Selectors: the connections that a rule applies to, by the addresses and ports of both ends (the term is that of RFC 4301 section
// 4.4.1.1). The agent asks the same function in its programs for user timeouts (crates/agent/bpf/user_timeout/rules.h) and in user space
// (crates/agent/src/policy.rs), and the gateway for modes of single connections (crates/gatewayd/bpf/gateway/rules.h,
// crates/gatewayd/src/config/flow.rs). Nothing here depends on the flow path. build.rs writes the structures in Rust.

#pragma once

#include "types.h"

// The ends of a connection. IPv4 addresses are mapped to ::ffff:0:0/96. `struct key` has the same as in packets; here addresses are words
// in network byte order, because a prefix is compared word by word, and ports are in host byte order, because a range is compared.
struct ends {
	u32 local[4], remote[4];
	u16 local_port, remote_port;
};

// Connections whose ends have these prefixes and ports. Bits of a prefix outside of its mask are 0.
struct selector {
	u32 local[4], local_mask[4];
	u32 remote[4], remote_mask[4];
	u16 local_ports[2], remote_ports[2]; // the first and the last
	u8 within_host; // connections within this host are selected, too
	u8 unused[3];
};

INLINE int has_prefix(const u32 *address, const u32 *prefix, const u32 *mask)
{
	return (address[0] & mask[0]) == prefix[0] && (address[1] & mask[1]) == prefix[1] &&
	       (address[2] & mask[2]) == prefix[2] && (address[3] & mask[3]) == prefix[3];
}

INLINE int is_in_range(u16 port, const u16 *range)
{
	return port >= range[0] && port <= range[1];
}

INLINE int is_ipv4(const u32 *address)
{
	return !address[0] && !address[1] && address[2] == BE32(0xffff);
}

INLINE int is_loopback(const u32 *address)
{
	if (is_ipv4(address))
		return (address[3] & BE32(0xff000000)) == BE32(0x7f000000);
	return !address[0] && !address[1] && !address[2] && address[3] == BE32(1);
}

// A connection from this host to itself: a loopback address, or equal addresses at both ends.
INLINE int is_within_host(const struct ends *ends)
{
	if (is_loopback(ends->local) || is_loopback(ends->remote))
		return 1;
	return ends->local[0] == ends->remote[0] && ends->local[1] == ends->remote[1] && ends->local[2] == ends->remote[2] &&
	       ends->local[3] == ends->remote[3];
}

// `within_host` is what `is_within_host` returns: the same for all selectors, so the caller computes it once.
INLINE int selects(const struct selector *selector, const struct ends *ends, int within_host)
{
	if (within_host && !selector->within_host)
		return 0;
	if (!is_in_range(ends->local_port, selector->local_ports) || !is_in_range(ends->remote_port, selector->remote_ports))
		return 0;
	return has_prefix(ends->local, selector->local, selector->local_mask) &&
	       has_prefix(ends->remote, selector->remote, selector->remote_mask);
}
