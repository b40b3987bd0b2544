// Programs to compare the gateway's with: one that does nothing, for the cost of the hook alone, and one for a host that discards every
// IPv4 packet.

#include "kernel.h"

#define PASS -1 // TCX_NEXT: the next program of the hook runs

SEC("classifier")
int pass(struct __sk_buff *skb)
{
	return PASS;
}

// ARP passes, so that address resolution keeps working.
SEC("classifier")
int discard(struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IP) ? TC_ACT_SHOT : PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
