// SPDX-License-Identifier: MIT OR GPL-2.0
//
// Constants and fields of the running kernel: CO-RE looks up the offsets of the fields.

#pragma once

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
// States that may have data in flight: ESTABLISHED, FIN-WAIT-1, CLOSE-WAIT, LAST-ACK, CLOSING.
#define STATES_WITH_DATA (1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11)

// Only the fields that are read.
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
