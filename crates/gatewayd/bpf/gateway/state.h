// The maps of mobile hosts, and the programs' accesses to them.

#pragma once

#include "ip.h"

#include "records.h"

#define ALL_COUNTERS MOBILE_COUNTERS

// Of a key of the flow table, `local` is the fixed host and `remote` the mobile host.
#include "flow_table.h"

// The frame has this router's own Ethernet address (linux/if_packet.h).
#define PACKET_HOST 0

#define PASS -1 // TCX_NEXT: the next program of the hook runs

// A mobile host before its first packet, as words: a value with a lock cannot be copied.
struct blank_mobile {
	u64 words[sizeof(struct mobile) / 8];
};

// Set when the programs are loaded: the index of the interface to which packets are diverted.
const volatile u32 divert_to = 0;

// The shortest interval between two notices about one mobile host.
#define NOTICE_EVERY (5 * MS)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct address);
	__type(value, struct mobile);
} mobiles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct blank_mobile);
} blank_mobiles SEC(".maps");

struct network_key {
	u32 bits;
	struct address address;
};

// Networks of mobile hosts, and exceptions from them: the longest prefix applies. The value is the length of a mobile host's prefix, 128
// where each address is one, and 0 for an exception.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct network_key);
	__type(value, u32);
} networks SEC(".maps");

// The value of the longest prefix of an address in a map of networks; 0 without one.
INLINE u32 value_of_network(void *map, const struct address *address)
{
	struct network_key key = {.bits = 128, .address = *address};
	u32 *value = bpf_map_lookup_elem(map, &key);

	return value ? *value : 0;
}

// Set when the programs are loaded: whether some mobile hosts have a prefix of addresses.
const volatile u32 has_prefixes = 0;

// Replaces an address by the name of its mobile host, the first address of the prefix. A global function, which verifiers check by itself.
__attribute__((noinline)) int find_name(struct address *address)
{
	if (!address)
		return 0;
	struct address copy = *address;
	u32 bits = value_of_network(&networks, &copy);

	if (!bits || bits >= 128)
		return 0;
	UNROLL
	for (u32 n = 0; n < 4; n++) {
		u32 first = n * 32;

		if (bits <= first)
			address->words[n] = 0;
		else if (bits < first + 32)
			address->words[n] &= bpf_htonl(~0u << (first + 32 - bits));
	}
	return 0;
}

// Two times: from the first on, packets pass whatever their course is; from the second on, SYNs pass unsplit.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} expiry SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} notices SEC(".maps");

// The time from which packets pass whatever their course is, by the clock of bpf_ktime_get_ns().
INLINE u64 expires_at(void)
{
	u32 zero = 0;
	u64 *at = bpf_map_lookup_elem(&expiry, &zero);

	return at ? *at : 0;
}

// ENODEV of linux/errno.h.
#define NO_DEVICE (-19)

INLINE void set_ipv4(struct address *address, u32 value)
{
	address->words[0] = 0;
	address->words[1] = 0;
	address->words[2] = bpf_htonl(0xffff);
	address->words[3] = value;
}

INLINE int mac_differs(const struct mac *left, const struct mac *right)
{
	return left->words[0] != right->words[0] || left->words[1] != right->words[1] || left->words[2] != right->words[2];
}
