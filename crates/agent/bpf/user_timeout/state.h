// SPDX-License-Identifier: MIT OR GPL-2.0
//
// The constants of the option and of timeouts, and the maps.

#pragma once

#include "records.h"

// The TCP User Timeout option (RFC 5482 section 2): kind, length, one bit for minutes, 15 bits of time.
#define UTO_KIND 28
#define UTO_LEN 4
#define UTO_MINUTES 0x8000
// The option is unreliable: it is sent on every segment until data sent with it is acknowledged, but on no more than this many.
#define UTO_SEGMENTS 8

// With timestamps in microseconds (route feature tcp_usec_ts) the kernel counts a user timeout in 32 signed bits of microseconds: a
// longer one would end a connection at once.
#define LONGEST_WITH_USEC_TS_MS (2146 * 1000 + MARK_MS)

// Every timeout that this program sets is a whole number of seconds plus this. An agent recognises by it the timeouts of a killed
// predecessor.
#define MARK_MS 617

// Two tables, one in use while user space writes the other. The parity of `table_in_use` selects it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_RULES);
	__type(key, __u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} rule_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} table_in_use SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} pass_in_progress SEC(".maps");

// User space's decisions, by socket cookie.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct wish);
} decisions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct given);
} given SEC(".maps");

// Socket cookies of connections whose owner user space has to look up.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} questions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

// The network namespace to act in (SO_NETNS_COOKIE): a cgroup may hold processes of several. 0 for all of them.
const volatile __u64 netns_cookie = 0;
// The longest time between two passes of the iterator, in ms.
const volatile __u32 pass_interval_ms = 0;

static __always_inline void count(__u32 which)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &which);

	if (value)
		__sync_fetch_and_add(value, 1);
}
