// SPDX-License-Identifier: MIT OR GPL-2.0
//
// The layout of everything that the programs and user space share, and the maps.

#pragma once

// The TCP User Timeout option (RFC 5482 section 2): kind, length, and a bit for minutes before 15 bits of time.
#define UTO_KIND 28
#define UTO_LEN 4
#define UTO_MINUTES 0x8000
// It is not acknowledged. It goes out with each segment until one with data that had it was acknowledged, or with so many.
#define UTO_SEGMENTS 8

#define MAX_RULES 128

// Timestamps in microseconds (a route with the feature tcp_usec_ts) make the kernel count a user timeout in 32 bits of
// microseconds, of which one is the sign: longer ones would end a connection at once.
#define LONGEST_WITH_USEC_TS_MS (2146 * 1000 + MARK_MS)

// Every timeout that this program sets is so much longer than whole seconds. That is how an agent knows those of one before it,
// which was killed.
#define MARK_MS 617

enum action {
	LEAVE_ALONE,
	// The timeout is at least what the kernel would do by itself.
	HOLD,
	FAIL_FAST,
};

// What is to be done for a connection.
struct wish {
	__u32 timeout_ms;
	// How far the peer's option may move the timeout.
	__u32 accept_ms;
	// What the option says, as on the wire; 0 for no option in either direction.
	__u16 advertise;
	__u8 action;
	// An application's own timeout is replaced.
	__u8 replace;
	// The rule's number, for whoever asks.
	__u32 rule;
};

// IPv4 is ::ffff:0:0/96 everywhere. Addresses are in the order of the wire, ports in the machine's.
struct rule {
	__u32 local[4];
	__u32 local_mask[4];
	__u32 remote[4];
	__u32 remote_mask[4];
	__u16 local_ports[2];
	__u16 remote_ports[2];
	// It says something of the owner: what fits so far is told to user space.
	__u8 needs_owner;
	// It concerns connections within this host, too.
	__u8 within_host;
	__u8 unused[2];
	struct wish wish;
};

struct flow {
	__u32 local[4];
	__u32 remote[4];
	__u16 local_port;
	__u16 remote_port;
};

// What was done to a socket; it goes with the socket.
struct given {
	struct wish wish;
	// Which tables of rules the wish is from, by `table_in_use`.
	__u32 generation;
	// The timeout that this program has set last; 0 for none.
	__u32 set_ms;
	// What the socket had before.
	__u32 before_ms;
	// What the peer's option asked for; 0 for nothing.
	__u32 peer_ms;
	// When the peer was first seen to keep its window shut, in ns; 0 while it is open.
	__u64 shut_since;
	// The option is no longer sent when this is acknowledged.
	__u32 advertised_to;
	__u8 segments_with_option;
	// The application has set a timeout itself, which stays.
	__u8 is_applications;
	__u8 unused[2];
};

// What the iterator tells of each socket that has something.
struct record {
	__u64 cookie;
	struct given given;
};

enum pass {
	APPLY,
	// Everything is as it was before.
	RESTORE,
};

enum counter {
	SET,
	SET_OPEN,
	APPLICATIONS_OWN,
	REFUSED,
	ASKED,
	NOT_ASKED,
	OPTIONS_SENT,
	OPTIONS_RECEIVED,
	COUNTERS,
};

// Two tables, of which one is in use while the other is written: the one of `table_in_use`'s parity.
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

// What user space has decided, by the cookies of sockets.
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

// Cookies of the connections whose owner matters.
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

// The network namespace whose connections are looked after (SO_NETNS_COOKIE): a cgroup may hold processes of many.
const volatile __u64 netns_cookie = 0;
// How long it is from one pass of the iterator to the next, at most.
const volatile __u32 pass_interval_ms = 0;

static __always_inline void count(__u32 which)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &which);

	if (value)
		__sync_fetch_and_add(value, 1);
}
