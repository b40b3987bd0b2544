#!/bin/bash
# What the scripts beside this file expect of the machine.
ip tcp_metrics flush all > /dev/null 2>&1
sysctl -q net.ipv4.tcp_rmem="4096 540000 $((15*1024*1024))"
sysctl -q net.ipv4.tcp_wmem="4096 $((256*1024)) 4194304"
sysctl -q net.ipv4.tcp_congestion_control=reno net.ipv4.tcp_early_retrans=4
sysctl -q net.ipv4.tcp_slow_start_after_idle=0
tc qdisc add dev tun0 root pfifo
