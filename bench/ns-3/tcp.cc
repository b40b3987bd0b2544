// TCP in ns-3, the counterpart of `holdover bench sim-bulk` and `sim-lossy`: transfers in segments of 1448 bytes with SACK and
// timestamps, CUBIC, buffers of 4 MiB, without captures. The argument names the measure. Prints one line of JSON; its speed is per
// second of the core's time, so that other programs do not count.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
constexpr uint32_t kSegment = 1448;
constexpr uint16_t kPort = 5001;

struct Measure
{
    const char* name;
    uint32_t transfers; // one begins a millisecond
    uint64_t bytes;     // each
    const char* rate;
    const char* queue; // drop-tail
    double loss;       // share of packets lost towards the receiver, at random
};

constexpr Measure kMeasures[] = {
    {"bulk", 1, 250000000, "10Mbps", "75p", 0.0},
    {"lossy", 1000, 250000, "1Gbps", "5000p", 0.01},
};

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

int
Run(const Measure& measure)
{
    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(measure.rate));
    link.SetChannelAttribute("Delay", StringValue("25ms"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(measure.queue));
    NetDeviceContainer devices = link.Install(nodes);
    if (measure.loss > 0.0)
    {
        Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
        errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        errors->SetRate(measure.loss);
        devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
    }

    InternetStackHelper internet;
    internet.Install(nodes);
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    // Without the queue discipline that ns-3 puts in front of every device, the device's queue is the only one.
    TrafficControlHelper().Uninstall(devices);

    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), kPort));
    source.SetAttribute("MaxBytes", UintegerValue(measure.bytes));
    source.SetAttribute("SendSize", UintegerValue(1 << 16));
    for (uint32_t n = 0; n < measure.transfers; ++n)
    {
        source.Install(nodes.Get(0)).Start(MilliSeconds(n));
    }
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), kPort));
    ApplicationContainer sinks = sink.Install(nodes.Get(1));
    sinks.Start(Seconds(0));

    Simulator::Stop(Seconds(1000));
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t start_cpu = std::clock();
    Simulator::Run();
    const double cpu_seconds = static_cast<double>(std::clock() - start_cpu) / CLOCKS_PER_SEC;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

    const uint64_t wanted = measure.transfers * measure.bytes;
    const uint64_t received = DynamicCast<PacketSink>(sinks.Get(0))->GetTotalRx();
    const auto queue = DynamicCast<PointToPointNetDevice>(devices.Get(0))->GetQueue();
    // All that the sender gave to its device, but for the SYN, the ACK of the handshake, and the FIN and its last ACK of each
    // connection. Those that were sent again count as data; with 1 % of loss they are one in 4,000.
    const uint64_t segments =
        queue->GetTotalReceivedPackets() + queue->GetTotalDroppedPacketsBeforeEnqueue() - 4 * measure.transfers;
    std::printf("{\"name\": \"ns-3 %s\", \"bytes\": %lu, \"segments\": %lu, \"seconds\": %.3f, "
                "\"cpu_seconds\": %.3f, \"segments_per_second\": %.0f}\n",
                measure.name,
                static_cast<unsigned long>(received),
                static_cast<unsigned long>(segments),
                took.count(),
                cpu_seconds,
                static_cast<double>(segments) / cpu_seconds);
    Simulator::Destroy();
    if (received != wanted)
    {
        std::fprintf(stderr, "%lu of %lu bytes arrived\n", static_cast<unsigned long>(received), static_cast<unsigned long>(wanted));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
} // namespace

int
main(int argc, char** argv)
{
    for (const Measure& measure : kMeasures)
    {
        if (argc == 2 && std::strcmp(argv[1], measure.name) == 0)
        {
            Configure();
            return Run(measure);
        }
    }
    std::fprintf(stderr, "usage: %s bulk|lossy\n", argv[0]);
    return EXIT_FAILURE;
}
