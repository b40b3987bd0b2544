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

// linux/socket.h, linux/tcp.h, net/tcp_states.h
#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SOL_TCP 6
#define SO_KEEPALIVE 9
#define TCP_KEEPIDLE 4
#define TCP_KEEPINTVL 5
#define TCP_KEEPCNT 6
#define TCP_USER_TIMEOUT 18
#define STATE_SYN_SENT 2
// ESTABLISHED, FIN-WAIT-1, CLOSE-WAIT, LAST-ACK, CLOSING: what may have data in flight.
#define STATES_WITH_DATA (1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11)

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

// The few fields that are read, wherever the running kernel has them.
struct in6_addr___kernel {
	__u32 words[4];
};

struct sock_common {
	unsigned short skc_family;
	volatile unsigned char skc_state;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	struct in6_addr___kernel skc_v6_daddr;
	struct in6_addr___kernel skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct inet_sock {
	struct sock sk;
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u8 icsk_probes_out;
	__u32 icsk_probes_tstamp;
	__u32 icsk_user_timeout;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u8 tcp_usec_ts : 1;
} __attribute__((preserve_access_index));

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

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

// From this host to itself: to its loopback addresses, or to the address that it sends from.
static __always_inline int is_within_host(const struct flow *flow)
{
	if (is_loopback(flow->local) || is_loopback(flow->remote))
		return 1;
	return flow->local[0] == flow->remote[0] && flow->local[1] == flow->remote[1] &&
	       flow->local[2] == flow->remote[2] && flow->local[3] == flow->remote[3];
}

enum verdict {
	NOTHING_FITS,
	FITS,
	NEEDS_OWNER,
};

// The first rule that fits.
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
		__u32 key = table * MAX_RULES + i;
		struct rule *rule;

		if (i >= number)
			break;
		rule = bpf_map_lookup_elem(&rules, &key);
		if (!rule)
			break;
		if (within_host && !rule->within_host)
			continue;
		if (!fits_ports(flow->local_port, rule->local_ports) || !fits_ports(flow->remote_port, rule->remote_ports))
			continue;
		if (!fits_prefix(flow->local, rule->local, rule->local_mask) ||
		    !fits_prefix(flow->remote, rule->remote, rule->remote_mask))
			continue;
		*wish = rule->wish;
		return rule->needs_owner ? NEEDS_OWNER : FITS;
	}
	return NOTHING_FITS;
}

// RFC 5482 section 2.
static __always_inline __u32 ms_of_option(__u16 wire)
{
	__u32 value = wire & ~UTO_MINUTES;

	return wire & UTO_MINUTES ? value * 60000 : value * 1000;
}

// How long the kernel bears a peer's silence with keep-alive; 0 without it. `ctx` is what the helper takes in each kind of program.
static __always_inline __u32 keep_alive_ms(void *ctx)
{
	int on = 0, idle = 0, interval = 0, probes = 0;

	if (bpf_getsockopt(ctx, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) || !on ||
	    bpf_getsockopt(ctx, SOL_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) ||
	    bpf_getsockopt(ctx, SOL_TCP, TCP_KEEPINTVL, &interval, sizeof(interval)) ||
	    bpf_getsockopt(ctx, SOL_TCP, TCP_KEEPCNT, &probes, sizeof(probes)))
		return 0;
	return ((__u32)idle + (__u32)interval * (__u32)probes) * 1000;
}

static __always_inline int has_usec_timestamps(struct tcp_sock *tcp)
{
	return bpf_core_field_exists(tcp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD(tcp, tcp_usec_ts);
}

// The timeout that a socket is to have.
static __always_inline __u32 wanted_ms(void *ctx, struct tcp_sock *tcp, const struct given *given)
{
	__u32 wanted = given->wish.timeout_ms, peers = given->peer_ms;

	// RFC 5482 section 3.1: min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT)), with limits that are our own at least.
	if (peers > given->wish.accept_ms)
		peers = given->wish.accept_ms;
	if (peers > wanted)
		wanted = peers;
	if (given->wish.action == HOLD) {
		// A user timeout ends a connection with keep-alive at the first probe without an answer. The kernel waits for several.
		__u32 keep_alive = keep_alive_ms(ctx);

		if (keep_alive > wanted)
			wanted = keep_alive;
		// And it ends a connection whose peer answers and keeps its window shut, which the kernel never does. So it counts
		// from the last answer that was seen.
		if (given->shut_since)
			wanted += (bpf_ktime_get_ns() - given->shut_since) / 1000000 + pass_interval_ms;
	}
	wanted = wanted / 1000 * 1000 + MARK_MS;
	if (has_usec_timestamps(tcp) && wanted > LONGEST_WITH_USEC_TS_MS)
		wanted = LONGEST_WITH_USEC_TS_MS;
	return wanted;
}

// Gives a socket what it is to have.
static __always_inline void give(void *ctx, struct tcp_sock *tcp, struct given *given, __u32 counter)
{
	__u32 has = tcp->inet_conn.icsk_user_timeout, wanted;
	int ms;

	if (has % 1000 == MARK_MS && !given->set_ms)
		// From an agent before this one.
		given->set_ms = has;
	if (has != given->set_ms) {
		if (!given->wish.replace) {
			if (!given->is_applications)
				count(APPLICATIONS_OWN);
			given->is_applications = 1;
			given->set_ms = 0;
			return;
		}
		given->before_ms = has;
	}
	given->is_applications = 0;
	wanted = wanted_ms(ctx, tcp, given);
	if (has == wanted)
		return;
	ms = wanted;
	if (bpf_setsockopt(ctx, SOL_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms))) {
		count(REFUSED);
		return;
	}
	given->set_ms = wanted;
	count(counter);
}

// Gives it back what it had.
static __always_inline void take_back(void *ctx, struct tcp_sock *tcp, struct given *given)
{
	__u32 has = tcp->inet_conn.icsk_user_timeout;
	int ms = given->before_ms;

	if (has != given->set_ms && has % 1000 != MARK_MS)
		return;
	if (has && bpf_setsockopt(ctx, SOL_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)))
		count(REFUSED);
	given->set_ms = 0;
}

static __always_inline void ask(__u64 cookie)
{
	if (bpf_ringbuf_output(&questions, &cookie, sizeof(cookie), 0))
		count(NOT_ASKED);
	else
		count(ASKED);
}

static __always_inline __u32 generation(void)
{
	__u32 zero = 0;
	__u32 *in_use = bpf_map_lookup_elem(&table_in_use, &zero);

	return in_use ? *in_use : 0;
}

// --- Connections as they are made ---

#define OPTION_CALLBACKS (BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG)

static __always_inline void call_back(struct bpf_sock_ops *ops, __u32 flags)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | flags);
}

static __always_inline void call_back_no_more(struct bpf_sock_ops *ops, __u32 flags)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags & ~flags);
}

// The verifier wants every field of the context read by its own constant offset. Without the barrier the compiler joins reads.
#define FIELD(field)                     \
	({                               \
		__u32 value = ops->field; \
		barrier_var(value);      \
		value;                   \
	})

static __always_inline void flow_of_ops(struct bpf_sock_ops *ops, struct flow *flow)
{
	if (ops->family == AF_INET) {
		flow->local[2] = flow->remote[2] = bpf_htonl(0xffff);
		flow->local[3] = FIELD(local_ip4);
		flow->remote[3] = FIELD(remote_ip4);
	} else {
		flow->local[0] = FIELD(local_ip6[0]);
		flow->local[1] = FIELD(local_ip6[1]);
		flow->local[2] = FIELD(local_ip6[2]);
		flow->local[3] = FIELD(local_ip6[3]);
		flow->remote[0] = FIELD(remote_ip6[0]);
		flow->remote[1] = FIELD(remote_ip6[1]);
		flow->remote[2] = FIELD(remote_ip6[2]);
		flow->remote[3] = FIELD(remote_ip6[3]);
	}
	flow->local_port = FIELD(local_port);
	flow->remote_port = bpf_ntohl(FIELD(remote_port));
}

// What the peer asks for in the segment at hand.
static __always_inline int take_option(struct bpf_sock_ops *ops, struct given *given)
{
	__u8 option[UTO_LEN] = { UTO_KIND };
	__u32 ms;

	if (bpf_load_hdr_opt(ops, option, sizeof(option), 0) != UTO_LEN)
		return 0;
	ms = ms_of_option((__u16)option[2] << 8 | option[3]);
	// Zero is reserved.
	if (!ms)
		return 0;
	count(OPTIONS_RECEIVED);
	given->peer_ms = ms;
	return 1;
}

// A SYN is about to be sent, and may have the option (RFC 5482 section 3.1).
static __always_inline void connecting(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct flow flow = {};
	struct wish wish = {};
	struct given *on_socket;

	flow_of_ops(ops, &flow);
	if (decide(&flow, &wish) != FITS || !wish.advertise)
		return;
	on_socket = bpf_sk_storage_get(&given, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!on_socket)
		return;
	on_socket->wish = wish;
	on_socket->generation = generation();
	call_back(ops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

static __always_inline void established(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct flow flow = {};
	struct wish wish = {};
	struct given *on_socket;
	struct tcp_sock *tcp;
	int verdict;

	flow_of_ops(ops, &flow);
	verdict = decide(&flow, &wish);
	if (verdict == NEEDS_OWNER) {
		ask(bpf_get_socket_cookie(ops));
		// The answer may be that the option is wanted, and where it comes nobody can ask for these calls any more.
		if (wish.advertise)
			call_back(ops, OPTION_CALLBACKS);
		return;
	}
	if (verdict != FITS || wish.action == LEAVE_ALONE)
		return;
	tcp = bpf_skc_to_tcp_sock(sk);
	on_socket = bpf_sk_storage_get(&given, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!tcp || !on_socket) {
		count(REFUSED);
		return;
	}
	on_socket->wish = wish;
	on_socket->generation = generation();
	// What a SYN had says nothing of the segments after it.
	on_socket->segments_with_option = 0;
	if (wish.advertise) {
		call_back(ops, OPTION_CALLBACKS);
		take_option(ops, on_socket);
	}
	give(ops, tcp, on_socket, SET);
}

// How many bytes of options are to be reserved.
static __always_inline void option_length(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct given *on_socket = bpf_sk_storage_get(&given, sk, 0, 0);

	if (!on_socket)
		// Not answered yet.
		return;
	if (ops->state == STATE_SYN_SENT) {
		// A SYN that is not answered may have been thrown away for an option that somebody on the path does not know.
		if (on_socket->wish.advertise && !ops->total_retrans)
			bpf_reserve_hdr_opt(ops, UTO_LEN, 0);
		return;
	}
	if (!on_socket->wish.advertise) {
		call_back_no_more(ops, OPTION_CALLBACKS);
		return;
	}
	if (on_socket->segments_with_option >= UTO_SEGMENTS ||
	    (on_socket->segments_with_option && (__s32)(ops->snd_una - on_socket->advertised_to) > 0)) {
		call_back_no_more(ops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		return;
	}
	bpf_reserve_hdr_opt(ops, UTO_LEN, 0);
}

static __always_inline void write_option(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct given *on_socket = bpf_sk_storage_get(&given, sk, 0, 0);
	__u8 option[UTO_LEN] = { UTO_KIND, UTO_LEN };

	if (!on_socket || !on_socket->wish.advertise)
		return;
	option[2] = on_socket->wish.advertise >> 8;
	option[3] = on_socket->wish.advertise & 0xff;
	if (bpf_store_hdr_opt(ops, option, sizeof(option), 0))
		return;
	if (ops->state != STATE_SYN_SENT) {
		if (!on_socket->segments_with_option)
			on_socket->advertised_to = ops->snd_nxt;
		on_socket->segments_with_option++;
	}
	count(OPTIONS_SENT);
}

static __always_inline void segment_with_unknown_option(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct given *on_socket = bpf_sk_storage_get(&given, sk, 0, 0);
	struct tcp_sock *tcp;

	if (!on_socket || !on_socket->wish.advertise || !take_option(ops, on_socket))
		return;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (tcp && on_socket->wish.action != LEAVE_ALONE)
		give(ops, tcp, on_socket, SET);
}

SEC("sockops")
int new_connections(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	if (!sk || (ops->family != AF_INET && ops->family != AF_INET6))
		return 1;
	if (bpf_get_netns_cookie(ops) != netns_cookie)
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		connecting(ops, sk);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		established(ops, sk);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		option_length(ops, sk);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write_option(ops, sk);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		segment_with_unknown_option(ops, sk);
		break;
	}
	return 1;
}

// --- Connections that are open already ---

static __always_inline int flow_of_sock(struct sock_common *sk, struct flow *flow)
{
	if (sk->skc_family == AF_INET) {
		flow->local[2] = flow->remote[2] = bpf_htonl(0xffff);
		flow->local[3] = sk->skc_rcv_saddr;
		flow->remote[3] = sk->skc_daddr;
	} else if (sk->skc_family == AF_INET6 && bpf_core_field_exists(sk->skc_v6_daddr)) {
		flow->local[0] = sk->skc_v6_rcv_saddr.words[0];
		flow->local[1] = sk->skc_v6_rcv_saddr.words[1];
		flow->local[2] = sk->skc_v6_rcv_saddr.words[2];
		flow->local[3] = sk->skc_v6_rcv_saddr.words[3];
		flow->remote[0] = sk->skc_v6_daddr.words[0];
		flow->remote[1] = sk->skc_v6_daddr.words[1];
		flow->remote[2] = sk->skc_v6_daddr.words[2];
		flow->remote[3] = sk->skc_v6_daddr.words[3];
	} else {
		return 0;
	}
	flow->local_port = sk->skc_num;
	flow->remote_port = bpf_ntohs(sk->skc_dport);
	return 1;
}

// What is to be done for a socket: the answer of user space, what was found before, or what the rules say. 0 if that is not known.
static __always_inline int wish_for(struct sock_common *sk, __u64 cookie, struct given *known, struct wish *wish)
{
	struct wish *answer = bpf_map_lookup_elem(&decisions, &cookie);
	struct flow flow = {};
	int verdict;

	if (answer) {
		*wish = *answer;
		return 1;
	}
	if (known && known->generation == generation()) {
		*wish = known->wish;
		return 1;
	}
	if (!flow_of_sock(sk, &flow))
		return 0;
	verdict = decide(&flow, wish);
	if (verdict == NEEDS_OWNER) {
		ask(cookie);
		return 0;
	}
	if (verdict == NOTHING_FITS)
		wish->action = LEAVE_ALONE;
	return 1;
}

// Whether the peer keeps its window shut and says so when it is asked.
static __always_inline void look_at_window(struct tcp_sock *tcp, struct given *given)
{
	if (!tcp->inet_conn.icsk_probes_tstamp)
		given->shut_since = 0;
	else if (!given->shut_since && tcp->inet_conn.icsk_probes_out <= 1)
		given->shut_since = bpf_ktime_get_ns();
}

SEC("iter/tcp")
int open_connections(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;
	struct given *on_socket;
	struct record record = {};
	struct wish wish = {};
	struct tcp_sock *tcp;
	__u32 zero = 0, *pass;
	int knows;

	if (!sk)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	pass = bpf_map_lookup_elem(&pass_in_progress, &zero);
	if (!tcp || !pass || !(1u << (sk->skc_state & 31) & STATES_WITH_DATA))
		return 0;
	record.cookie = bpf_get_socket_cookie(tcp);
	on_socket = bpf_sk_storage_get(&given, (void *)tcp, 0, 0);
	if (*pass == RESTORE) {
		if (on_socket) {
			take_back(tcp, tcp, on_socket);
			bpf_sk_storage_delete(&given, (void *)tcp);
		}
		return 0;
	}
	knows = wish_for(sk, record.cookie, on_socket, &wish);
	if (knows && !on_socket) {
		if (wish.action == LEAVE_ALONE && !bpf_map_lookup_elem(&decisions, &record.cookie) &&
		    tcp->inet_conn.icsk_user_timeout % 1000 != MARK_MS)
			return 0;
		on_socket = bpf_sk_storage_get(&given, (void *)tcp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	}
	if (!on_socket)
		return 0;
	if (knows) {
		on_socket->wish = wish;
		on_socket->generation = generation();
		if (wish.action == LEAVE_ALONE) {
			take_back(tcp, tcp, on_socket);
		} else {
			look_at_window(tcp, on_socket);
			give(tcp, tcp, on_socket, SET_OPEN);
		}
	}
	record.given = *on_socket;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

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
