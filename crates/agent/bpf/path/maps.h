// The maps: links, flows, lines of header prediction, notices and counters.

#pragma once

const volatile struct rules rules = {};

// The link as it is now is that of the two whose number is in `turn`, for each IP version by itself, as they may fail apart. With it are
// the flag CALM if nothing happens to it (for IPv4 and for IPv6), FRAMES if packets are Ethernet frames, and LISTENS while nothing has come
// in for a while: all that is asked of every packet is in one line of the cache.
#define TURN_NUMBER 1
#define TURN_CALM 2
#define TURN_FRAMES 4
#define TURN_LISTENS 8
#define TURN_CALM_IPV6 16

#define IPV4 0
#define IPV6 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4); // those of IPv6 after those of IPv4
	__type(key, u32);
	__type(value, struct link);
} links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} turn SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct key);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); // so that values begin with a page, and none lies in two lines of the cache
	__uint(max_entries, 2 << BULK_PLACES_BITS);
	__type(key, u32);
	__type(value, struct bulk);
} bulks SEC(".maps");

// What a connection is before its first packet; in words, because whoever has a lock in a map cannot copy it.
struct blank {
	u64 words[sizeof(struct connection) / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct blank);
} blank SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} notices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

// For each IP version.
u64 incoming_told_at[2] = {};
u64 arrival_told_at[2] = {};

INLINE void count(u32 what)
{
	u64 *value = bpf_map_lookup_elem(&counters, &what);

	if (value)
		*value += 1;
}

INLINE u64 turn_now(void)
{
	u32 zero = 0;
	u64 *which = bpf_map_lookup_elem(&turn, &zero);

	return which ? *(volatile u64 *)which : 0;
}

INLINE u32 family_of(const struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IPV6) ? IPV6 : IPV4;
}

INLINE int is_calm(u64 turn, u32 family)
{
	return turn & (family == IPV6 ? TURN_CALM_IPV6 : TURN_CALM);
}

INLINE const struct link *link_of(u64 turn, u32 family)
{
	u32 number = (turn & TURN_NUMBER) | family << 1;

	return bpf_map_lookup_elem(&links, &number);
}
