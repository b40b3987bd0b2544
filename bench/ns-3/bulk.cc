// Bulk TCP in ns-3, the counterpart of `holdover bench sim-bulk`: 250 MB over 10 Mbit/s with 25 ms each way and a drop-tail queue of
// 75 packets, in segments of 1448 bytes with SACK and timestamps, CUBIC, buffers of 4 MiB, without captures. Prints one line of JSON;
// its speed is per second of the core's time, so that other programs do not count.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace
{
constexpr uint64_t kBytes = 250000000;
constexpr uint32_t kSegment = 1448;
constexpr uint16_t kPort = 5001;

void
Configure()
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kSegment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(true));
}
} // namespace

int
main()
{
    Configure();

    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("10Mbps"));
    link.SetChannelAttribute("Delay", StringValue("25ms"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("75p"));
    NetDeviceContainer devices = link.Install(nodes);

    InternetStackHelper internet;
    internet.Install(nodes);
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    // Without the queue discipline that ns-3 puts in front of every device, the device's queue is the only one.
    TrafficControlHelper().Uninstall(devices);

    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), kPort));
    source.SetAttribute("MaxBytes", UintegerValue(kBytes));
    source.SetAttribute("SendSize", UintegerValue(1 << 16));
    source.Install(nodes.Get(0)).Start(Seconds(0));
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), kPort));
    ApplicationContainer sinks = sink.Install(nodes.Get(1));
    sinks.Start(Seconds(0));

    Simulator::Stop(Seconds(1000));
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t start_cpu = std::clock();
    Simulator::Run();
    const double cpu_seconds = static_cast<double>(std::clock() - start_cpu) / CLOCKS_PER_SEC;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

    const uint64_t received = DynamicCast<PacketSink>(sinks.Get(0))->GetTotalRx();
    const auto queue = DynamicCast<PointToPointNetDevice>(devices.Get(0))->GetQueue();
    // All that the sender gave to its device, but for the SYN, the ACK of the handshake, and the FIN and its last ACK.
    const uint64_t segments = queue->GetTotalReceivedPackets() + queue->GetTotalDroppedPacketsBeforeEnqueue() - 4;
    std::printf("{\"name\": \"ns-3 bulk\", \"bytes\": %lu, \"segments\": %lu, \"seconds\": %.3f, "
                "\"cpu_seconds\": %.3f, \"segments_per_second\": %.0f}\n",
                static_cast<unsigned long>(received),
                static_cast<unsigned long>(segments),
                took.count(),
                cpu_seconds,
                static_cast<double>(segments) / cpu_seconds);
    Simulator::Destroy();
    if (received != kBytes)
    {
        std::fprintf(stderr, "%lu of %lu bytes arrived\n", static_cast<unsigned long>(received), static_cast<unsigned long>(kBytes));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
