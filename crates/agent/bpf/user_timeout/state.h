// SPDX-License-Identifier: MIT OR GPL-2.0
//
// The layout of everything that the programs and user space share, and the maps.

#pragma once

// The TCP User Timeout option (RFC 5482 section 2): kind, length, one bit for minutes, 15 bits of time.
#define UTO_KIND 28
#define UTO_LEN 4
#define UTO_MINUTES 0x8000
// The option is unreliable: it is sent on every segment until data sent with it is acknowledged, but on no more than this many.
#define UTO_SEGMENTS 8

#define MAX_RULES 128

// With timestamps in microseconds (route feature tcp_usec_ts) the kernel counts a user timeout in 32 signed bits of microseconds: a
// longer one would end a connection at once.
#define LONGEST_WITH_USEC_TS_MS (2146 * 1000 + MARK_MS)

// Every timeout that this program sets is a whole number of seconds plus this. An agent recognises by it the timeouts of a killed
// predecessor.
#define MARK_MS 617

enum action {
	LEAVE_ALONE,
	// The timeout is at least the kernel's own patience.
	HOLD,
	FAIL_FAST,
};

// What a rule, or user space, wants for a connection.
struct wish {
	__u32 timeout_ms;
	// The longest timeout that the peer's option may ask for.
	__u32 accept_ms;
	// The option that is sent, as on the wire; 0: options are neither sent nor accepted.
	__u16 advertise;
	__u8 action;
	// An application's own timeout is replaced.
	__u8 replace;
	// The rule's number.
	__u32 rule;
};

// IPv4 addresses are mapped to ::ffff:0:0/96. Addresses are in network byte order, ports in host byte order.
struct rule {
	__u32 local[4];
	__u32 local_mask[4];
	__u32 remote[4];
	__u32 remote_mask[4];
	__u16 local_ports[2];
	__u16 remote_ports[2];
	// The rule also asks for the owner: a match is reported to user space.
	__u8 needs_owner;
	// The rule also applies to connections within this host.
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

// What was set on a socket, in its local storage.
struct given {
	struct wish wish;
	// The value of `table_in_use` when the wish was looked up.
	__u32 generation;
	// The last timeout that this program set, in ms; 0 for none.
	__u32 set_ms;
	// The socket's timeout before that, in ms.
	__u32 before_ms;
	// The timeout that the peer's option asked for, in ms; 0 for none.
	__u32 peer_ms;
	// When the peer's window was first seen closed, in ns of CLOCK_MONOTONIC; 0 while it is open.
	__u64 shut_since;
	// The option is sent until this sequence number is acknowledged.
	__u32 advertised_to;
	__u8 segments_with_option;
	// The application has set a timeout, which is left alone.
	__u8 is_applications;
	__u8 unused[2];
};

// What the iterator writes for each socket with an entry in `given`.
struct record {
	__u64 cookie;
	struct given given;
};

enum pass {
	APPLY,
	// Every socket gets its former timeout back.
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
