//! The stub resolver against a small server on loopback.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use domain::base::iana::{OptRcode, Rcode};
use domain::base::message_builder::StaticCompressor;
use domain::base::name::ToName as _;
use domain::base::{Message, MessageBuilder, UnknownRecordData};
use domain::rdata::{A, Aaaa, Cname};
use holdover_hip::identity::{Algorithm, HostIdentity, IdentityError, KeyPair, RecordKeyError, drip_entity_tag};
use proptest::prelude::*;

use super::message::{Query, Reading};
use super::*;
use crate::files::AddressProblem;
use crate::random::SystemRandom;

pub(super) fn name(text: &str) -> DomainName {
    domain_name(text).unwrap()
}

pub(super) fn identity(algorithm: Algorithm) -> HostIdentity {
    KeyPair::generate(algorithm, &mut SystemRandom).identity().clone()
}

/// Data of a record.
#[derive(Clone, Debug)]
enum Data {
    Hip(Vec<u8>),
    V4(&'static str),
    V6(&'static str),
    Alias(&'static str),
}

impl Data {
    fn rtype(&self) -> Rtype {
        match self {
            Self::Hip(_) => Rtype::HIP,
            Self::V4(_) => Rtype::A,
            Self::V6(_) => Rtype::AAAA,
            Self::Alias(_) => Rtype::CNAME,
        }
    }
}

/// The records of a server.
#[derive(Clone, Default, Debug)]
struct Zone {
    records: Vec<(&'static str, Data)>,
    is_validated: bool,
}

impl Zone {
    fn of(records: &[(&'static str, Data)]) -> Self {
        Self { records: records.to_vec(), is_validated: false }
    }

    /// The answer to a question, with all CNAMEs on the way, and compressed names.
    fn reply(&self, query: &Message<&[u8]>) -> Vec<u8> {
        let question = query.sole_question().unwrap();
        let of =
            |owner: &DomainName| self.records.iter().filter(|(it, _)| name(it) == *owner).cloned().collect::<Vec<_>>();
        let mut owner: DomainName = question.qname().to_vec();
        let exists = !of(&owner).is_empty();
        let mut found = Vec::new();
        while let Some((alias, Data::Alias(target))) = of(&owner).first().cloned() {
            found.push((alias, Data::Alias(target)));
            owner = name(target);
        }
        found.extend(of(&owner).into_iter().filter(|(_, data)| data.rtype() == question.qtype()));
        let builder = MessageBuilder::from_target(StaticCompressor::new(Vec::new())).unwrap();
        let code = if exists { Rcode::NOERROR } else { Rcode::NXDOMAIN };
        let mut answer = builder.start_answer(query, code).unwrap();
        answer.header_mut().set_ad(self.is_validated);
        for (owner, data) in found {
            let owner = name(owner);
            match data {
                Data::Hip(data) => {
                    let data = UnknownRecordData::from_octets(Rtype::HIP, data).unwrap();
                    answer.push((&owner, 60, data)).unwrap();
                }
                Data::V4(address) => answer.push((&owner, 60, A::new(address.parse().unwrap()))).unwrap(),
                Data::V6(address) => answer.push((&owner, 60, Aaaa::new(address.parse().unwrap()))).unwrap(),
                Data::Alias(target) => answer.push((&owner, 60, Cname::new(name(target)))).unwrap(),
            }
        }
        answer.finish().into_target()
    }
}

/// How a question has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Udp,
    Tcp,
}

/// A server that ends with the test.
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// `answer` has the messages that are sent for each question, and gets the number of questions before it.
    fn start(answer: impl Fn(&Message<&[u8]>, Over, usize) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let (asked, is_over, answer) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default(), Arc::new(answer));
        udp.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let over_udp = {
            let (asked, is_over, answer) = (Arc::clone(&asked), Arc::clone(&is_over), Arc::clone(&answer));
            move || {
                let mut buffer = [0; 1024];
                while !is_over.load(Ordering::Relaxed) {
                    let Ok((len, from)) = udp.recv_from(&mut buffer) else { continue };
                    let query = Message::from_octets(&buffer[..len]).unwrap();
                    for reply in answer(&query, Over::Udp, asked.fetch_add(1, Ordering::Relaxed)) {
                        udp.send_to(&reply, from).unwrap();
                    }
                }
            }
        };
        let over_tcp = {
            let (asked, is_over) = (Arc::clone(&asked), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    let Ok((mut stream, _)) = tcp.accept() else {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    };
                    stream.set_nonblocking(false).unwrap();
                    let mut len = [0; 2];
                    stream.read_exact(&mut len).unwrap();
                    let mut bytes = vec![0; u16::from_be_bytes(len).into()];
                    stream.read_exact(&mut bytes).unwrap();
                    let query = Message::from_octets(&bytes[..]).unwrap();
                    for reply in answer(&query, Over::Tcp, asked.fetch_add(1, Ordering::Relaxed)) {
                        stream.write_all(&(reply.len() as u16).to_be_bytes()).unwrap();
                        // In two parts, as a stream may bring them.
                        let (head, tail) = reply.split_at(reply.len() / 2);
                        stream.write_all(head).unwrap();
                        std::thread::sleep(Duration::from_millis(20));
                        stream.write_all(tail).unwrap();
                    }
                }
            }
        };
        let threads = vec![std::thread::spawn(over_udp), std::thread::spawn(over_tcp)];
        Self { address, asked, is_over, threads }
    }

    fn with(zone: Zone) -> Self {
        Self::start(move |query, _, _| vec![zone.reply(query)])
    }

    fn resolver(&self) -> Resolver {
        resolver(&[self.address])
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let result = thread.join();
            assert!(std::thread::panicking() || result.is_ok(), "the server has panicked");
        }
    }
}

fn resolver(addresses: &[SocketAddr]) -> Resolver {
    let timeout = Duration::from_secs(2);
    Resolver::new(Resolvers { addresses: addresses.to_vec(), timeout, attempts: 1, trusts_ad: false })
}

fn hip(identity: &HostIdentity, servers: &[&str]) -> Data {
    Data::Hip(HipRecord::new(identity, servers.iter().map(|it| name(it)).collect()).emit().unwrap())
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A host behind an alias, with addresses of both versions, and with two rendezvous servers; one does not exist.
// Claim: A peer is found in the DNS by its HIP record, through CNAMEs, with its addresses and those of its rendezvous servers; lost answers
// are asked for again, truncated ones over TCP, and answers with another id, question or port count for nothing.
// Tests: `tests::lost_answers_are_asked_for_again`, `tests::answers_to_other_questions_are_ignored`,
// `tests::truncated_answers_are_asked_for_over_tcp`, `tests::a_server_that_fails_is_passed_over`,
// `tests::the_resolver_that_has_answered_is_asked_first`, `tests::any_answer_is_read`
#[test]
fn a_host_is_found_by_its_name() {
    let identity = identity(Algorithm::Ed25519);
    let server = Server::with(Zone::of(&[
        ("www.example.org", Data::Alias("host.example.org")),
        ("host.example.org", Data::V4("192.0.2.7")),
        ("host.example.org", hip(&identity, &["rvs1.example.org", "RVS2.Example.org"])),
        ("host.example.org", Data::V6("2001:db8::7")),
        ("host.example.org", Data::V4("192.0.2.8")),
        ("host.example.org", Data::V4("224.0.0.1")),
        ("rvs2.example.org", Data::V4("203.0.113.9")),
        ("host.example.com", hip(&identity, &[])),
    ]));
    let found = find_host(&server.resolver(), &name("www.example.org."), false).unwrap();
    assert_eq!(found.identity, identity);
    assert_eq!(found.addresses, addresses(&["2001:db8::7", "192.0.2.7", "192.0.2.8"]));
    assert_eq!(found.servers, [name("rvs1.example.org"), name("rvs2.example.org")]);
    assert_eq!(found.server_addresses, addresses(&["203.0.113.9"]));
    assert_eq!(found.refused, [("224.0.0.1".parse().unwrap(), AddressProblem::Multicast)]);
    assert_eq!((found.proof, found.resolver), (Proof::Nothing, server.address));
    // Without addresses the peer has to initiate.
    let found = find_host(&server.resolver(), &name("host.example.com"), false).unwrap();
    assert!(found.addresses.is_empty() && found.server_addresses.is_empty());
}

/// A zone, genuine or forged, cannot point a host at itself, at a multicast group, or at its own link.
// Claim: Addresses in the DNS that are of no host elsewhere (unspecified, loopback, multicast, broadcast, link-local, HITs, IPv4 in IPv6)
// are ignored, those of rendezvous servers too, and named with the reason.
#[test]
fn addresses_that_are_of_no_host_are_ignored_and_named() {
    let identity = identity(Algorithm::Ed25519);
    let server = Server::with(Zone::of(&[
        ("host.example.org", hip(&identity, &["rvs.example.org"])),
        ("host.example.org", Data::V4("127.0.0.1")),
        ("host.example.org", Data::V4("0.0.0.0")),
        ("host.example.org", Data::V4("169.254.7.7")),
        ("host.example.org", Data::V4("192.0.2.7")),
        ("host.example.org", Data::V6("::1")),
        ("host.example.org", Data::V6("fe80::7")),
        ("rvs.example.org", Data::V4("255.255.255.255")),
        ("rvs.example.org", Data::V4("127.0.0.1")),
        ("rvs.example.org", Data::V6("2001:25::7")),
    ]));
    let found = find_host(&server.resolver(), &name("host.example.org"), false).unwrap();
    assert_eq!((found.addresses, found.server_addresses), (addresses(&["192.0.2.7"]), Vec::new()));
    let expected = [
        ("::1", AddressProblem::Loopback),
        ("127.0.0.1", AddressProblem::Loopback),
        ("fe80::7", AddressProblem::LinkLocal),
        ("0.0.0.0", AddressProblem::Unspecified),
        ("169.254.7.7", AddressProblem::LinkLocal),
        ("2001:25::7", AddressProblem::Hit),
        ("255.255.255.255", AddressProblem::Broadcast),
    ];
    assert_eq!(found.refused, expected.map(|(text, problem)| (text.parse().unwrap(), problem)));
}

// Claim: Names without HIP records, records whose HIT is not the hash of their key, keys that are not supported, and records without DNSSEC
// where it is required, are refused, each with its remedy.
// Tests: `tests::records_that_cannot_be_used_are_refused`, `tests::dnssec_is_required_on_demand`,
// `tests::lookups_that_fail_are_errors_if_nothing_else_is_found`
#[test]
fn names_without_records_give_distinct_errors() {
    let server = Server::with(Zone::of(&[
        ("host.example.org", Data::V4("192.0.2.7")),
        ("alias.example.org", Data::Alias("host.example.org")),
    ]));
    let error = |text| find_host(&server.resolver(), &name(text), false).unwrap_err();
    assert!(matches!(error("nobody.example.org"), DnsError::NoSuchName { .. }));
    for text in ["host.example.org", "alias.example.org"] {
        let error = error(text);
        assert!(matches!(error, DnsError::NoRecord { .. }));
        assert!(error.to_string().contains(&format!("holdover hip id --dns {text}")), "{error}");
    }
    for text in ["", ".", "a..b", &"a".repeat(64), &["abcdefg"; 40].join(".")] {
        assert!(matches!(domain_name(text), Err(DnsError::Name { .. })), "{text}");
    }
    for text in ["192.0.2.7", "2001:db8::7"] {
        assert!(matches!(domain_name(text), Err(DnsError::Address { .. })), "{text}");
    }
}

#[test]
fn records_that_cannot_be_used_are_refused() {
    let [ours, other] = [(); 2].map(|()| identity(Algorithm::EcdsaP256));
    let record = HipRecord::new(&ours, Vec::new());
    let wrong = HipRecord { hit: other.hit().0.octets().to_vec(), ..record.clone() };
    let dsa = HipRecord { algorithm: 1, ..record.clone() };
    let ed448 = HipRecord { algorithm: 4, public_key: vec![7; 57], ..record.clone() };
    let of_edwards = identity(Algorithm::Ed25519);
    let edwards = HipRecord::new(&of_edwards, Vec::new());
    let tag = drip_entity_tag(1, 2, of_edwards.encoded()).unwrap();
    let tagged = HipRecord { hit: tag.0.octets().to_vec(), ..edwards.clone() };
    let short = HipRecord { hit: vec![0x20; 8], ..edwards.clone() };
    let select = |records: &[&HipRecord]| {
        let data = records.iter().map(|record| ("host.example.org", Data::Hip(record.emit().unwrap())));
        let server = Server::with(Zone::of(&data.collect::<Vec<_>>()));
        find_host(&server.resolver(), &name("host.example.org"), false)
    };
    let reason = |records: &[&HipRecord]| match select(records).unwrap_err() {
        DnsError::Record { source, .. } => source,
        error => panic!("{error}"),
    };
    let mismatch = RecordError::Identity(RecordKeyError::Mismatch { hit: other.hit(), of_key: ours.hit() });
    assert_eq!(reason(&[&wrong]), mismatch);
    assert_eq!(reason(&[&edwards, &wrong]), mismatch, "also beside one that is valid");
    assert_eq!(reason(&[&dsa]), RecordKeyError::Algorithm { algorithm: 1 }.into());
    assert_eq!(reason(&[&ed448]), RecordKeyError::from(IdentityError::Curve { curve: 3 }).into());
    // Of those that are supported, the preferred kind of key.
    for records in [[&dsa, &record, &edwards], [&edwards, &record, &dsa]] {
        assert_eq!(select(&records).unwrap().identity.algorithm(), Algorithm::Ed25519);
    }
    assert_eq!(reason(&[&tagged]), RecordKeyError::Suite { hit: tag }.into());
    assert_eq!(reason(&[&short]), RecordError::HitLength { len: 8 });
    for unsupported in [&dsa, &tagged, &short] {
        assert_eq!(select(&[unsupported, &record]).unwrap().identity, ours);
    }
    let server = Server::with(Zone::of(&[("host.example.org", Data::Hip(vec![16, 4, 0, 32, 1]))]));
    let error = find_host(&server.resolver(), &name("host.example.org"), false).unwrap_err();
    assert!(matches!(error, DnsError::Record { source: RecordError::Short, .. }), "{error}");
}

/// Also where one of two lookups fails, and the other one finds nothing, or addresses that are ignored: the error names them.
#[test]
fn lookups_that_fail_are_errors_if_nothing_else_is_found() {
    let identity = identity(Algorithm::Ed25519);
    let zone = Zone::of(&[
        ("host.example.org", hip(&identity, &["broken.example.org", "rvs1.example.org", "rvs2.example.org"])),
        ("host.example.org", Data::V4("192.0.2.7")),
        ("host.example.org", Data::V4("192.0.2.7")),
        ("rvs1.example.org", Data::V4("192.0.2.7")),
        ("rvs1.example.org", Data::V4("203.0.113.9")),
        ("rvs2.example.org", Data::V4("203.0.113.9")),
        ("rvs2.example.org", Data::V6("2001:db8::9")),
        ("unmet.example.org", hip(&identity, &["broken.example.org"])),
        ("forged.example.org", hip(&identity, &["local.example.org", "broken.example.org"])),
        ("local.example.org", Data::V4("127.0.0.1")),
        ("half.example.org", hip(&identity, &[])),
    ]);
    let server = Server::start(move |query, _, _| {
        let question = query.sole_question().unwrap();
        let fails = match question.qname().to_string().as_str() {
            "broken.example.org" => true,
            "half.example.org" => question.qtype() == Rtype::A,
            _ => false,
        };
        if fails {
            let answer = MessageBuilder::new_vec().start_answer(query, Rcode::SERVFAIL).unwrap();
            return vec![answer.finish()];
        }
        vec![zone.reply(query)]
    });
    let find = |text| find_host(&server.resolver(), &name(text), false);
    for text in ["unmet.example.org", "half.example.org"] {
        assert!(matches!(find(text), Err(DnsError::Failed { code: OptRcode::SERVFAIL, .. })), "{text}");
    }
    let error = find("forged.example.org").unwrap_err();
    assert!(matches!(&error, DnsError::Servers { source, .. } if matches!(**source, DnsError::Failed { .. })));
    assert!(
        error.to_string().contains("forged.example.org") && error.to_string().contains("127.0.0.1 (it is a loopback")
    );
    // Each address counts once, and the host's own ones are no server's.
    let found = find("host.example.org").unwrap();
    assert_eq!(found.addresses, addresses(&["192.0.2.7"]));
    assert_eq!(found.server_addresses, addresses(&["203.0.113.9", "2001:db8::9"]));
}

#[test]
fn few_rendezvous_servers_are_looked_up() {
    let identity = identity(Algorithm::Ed25519);
    let servers: Vec<String> = (0..40).map(|number| format!("rvs{number}.example.org")).collect();
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    let server = Server::with(Zone::of(&[("host.example.org", hip(&identity, &servers))]));
    let found = find_host(&server.resolver(), &name("host.example.org"), false).unwrap();
    assert_eq!((found.servers.len(), found.server_addresses.len()), (40, 0));
    assert_eq!(server.asked(), 1 + 2 + 2 * 8, "the record, and addresses of the host and of eight servers");
}

#[test]
fn dnssec_is_required_on_demand() {
    let identity = identity(Algorithm::Ed25519);
    let zone = Zone::of(&[("host.example.org", hip(&identity, &[]))]);
    let find = |zone: Zone| {
        let server = Server::with(zone);
        find_host(&server.resolver(), &name("host.example.org"), true)
    };
    assert_eq!(find(Zone { is_validated: true, ..zone.clone() }).unwrap().proof, Proof::Validated);
    assert!(matches!(find(zone), Err(DnsError::NotValidated { .. })));
    // The AD bit of a remote resolver counts only if the administrator trusts the path.
    let remote: SocketAddr = "192.0.2.53:53".parse().unwrap();
    let of = |trusts_ad| Resolver::new(Resolvers { trusts_ad, ..Resolvers::one(remote) });
    assert!(!of(false).is_trusted(remote) && of(true).is_trusted(remote));
    assert!(
        of(false).is_trusted("[::1]:53".parse().unwrap()) && of(false).is_trusted("127.0.0.53:53".parse().unwrap())
    );
}

#[test]
fn lost_answers_are_asked_for_again() {
    let zone = Zone::of(&[("host.example.org", Data::V4("192.0.2.7"))]);
    let server = Server::start(move |query, _, before| if before == 0 { vec![] } else { vec![zone.reply(query)] });
    let answer = server.resolver().look_up(&name("host.example.org"), Rtype::A).unwrap();
    assert_eq!((answer.records, server.asked()), (vec![vec![192, 0, 2, 7]], 2));
}

#[test]
fn answers_to_other_questions_are_ignored() {
    let right = Zone::of(&[("host.example.org", Data::V4("192.0.2.7"))]);
    let forged =
        Zone::of(&[("host.example.org", Data::V4("203.0.113.66")), ("host.example.net", Data::V4("203.0.113.66"))]);
    let server = Server::start(move |query, _, _| {
        let reply = forged.reply(query);
        let changed = |at: usize, bits: u8| {
            let mut bytes = reply.clone();
            bytes[at] ^= bits;
            bytes
        };
        let id = query.header().id();
        let of = |text, rtype| Query::new(id, &name(text), rtype, false);
        let [other_name, other_type] = [of("host.example.net", Rtype::A), of("host.example.org", Rtype::AAAA)]
            .map(|query| forged.reply(&Message::from_octets(query.bytes()).unwrap()));
        // Another id, a question, another opcode, another name, another type; too short for a message; and the query itself.
        let wrong = [changed(0, 1), changed(2, 0x80), changed(2, 0x08), other_name, other_type, reply[..11].to_vec()];
        wrong.into_iter().chain([query.as_slice().to_vec(), right.reply(query)]).collect()
    });
    let answer = server.resolver().look_up(&name("HOST.example.org"), Rtype::A).unwrap();
    assert_eq!(answer.records, [[192, 0, 2, 7]]);
}

/// An answer from another port is ignored.
#[test]
fn answers_from_other_ports_are_ignored() {
    let (server, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = server.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        let (len, from) = server.recv_from(&mut buffer).unwrap();
        let query = Message::from_octets(&buffer[..len]).unwrap();
        let reply = |text| Zone::of(&[("host.example.org", Data::V4(text))]).reply(&query);
        other.send_to(&reply("203.0.113.66"), from).unwrap();
        server.send_to(&reply("192.0.2.7"), from).unwrap();
    });
    let answer = resolver(&[address]).look_up(&name("host.example.org"), Rtype::A).unwrap();
    assert_eq!(answer.records, [[192, 0, 2, 7]]);
    thread.join().unwrap();
}

#[test]
fn truncated_answers_are_asked_for_over_tcp() {
    let identity = identity(Algorithm::Rsa);
    let servers: Vec<String> = (0..60).map(|number| format!("rendezvous-{number}.example.org")).collect();
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    let zone = Zone::of(&[("host.example.org", hip(&identity, &servers))]);
    let server = Server::start(move |query, over, _| {
        let mut reply = zone.reply(query);
        if over == Over::Udp {
            assert!(reply.len() > 1232);
            // The question alone, with TC.
            reply = Zone::default().reply(query);
            reply[2] |= 0x02;
            reply[3] &= 0xf0;
        }
        vec![reply]
    });
    let answer = server.resolver().look_up(&name("host.example.org"), Rtype::HIP).unwrap();
    let record = HipRecord::parse(&answer.records[0]).unwrap();
    assert_eq!((record.identity(), record.servers.len(), server.asked()), (Ok(identity), 60, 2));
}

#[test]
fn a_server_that_fails_is_passed_over() {
    let failing = Server::start(|query, _, _| {
        let answer = MessageBuilder::new_vec().start_answer(query, Rcode::SERVFAIL).unwrap();
        vec![answer.finish()]
    });
    // No server listens there: the kernel reports the ICMP error.
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let zone = Zone::of(&[("host.example.org", Data::V4("192.0.2.7"))]);
    // It knows no EDNS, and leaves out the question that it could not read.
    let old = Server::start(move |query, _, _| {
        if query.opt().is_none() {
            return vec![zone.reply(query)];
        }
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(query.header().id());
        builder.header_mut().set_qr(true);
        builder.header_mut().set_rcode(Rcode::FORMERR);
        vec![builder.finish()]
    });
    let host = name("host.example.org");
    let answer = resolver(&[nobody, failing.address, old.address]).look_up(&host, Rtype::A).unwrap();
    assert_eq!((answer.server, answer.records), (old.address, vec![vec![192, 0, 2, 7]]));
    let error = resolver(&[nobody, failing.address]).look_up(&host, Rtype::A).unwrap_err();
    assert!(matches!(error, DnsError::Failed { code: OptRcode::SERVFAIL, .. }), "{error}");
    let error = resolver(&[nobody]).look_up(&host, Rtype::A).unwrap_err();
    assert!(matches!(&error, DnsError::NoAnswer { server, .. } if *server == nobody), "{error}");
}

#[test]
fn a_silent_server_is_given_up() {
    let server = Server::start(|_, _, _| vec![]);
    let timeout = Duration::from_millis(200);
    let resolvers = Resolvers { timeout, attempts: 2, ..Resolvers::one(server.address) };
    let error = Resolver::new(resolvers).look_up(&name("host.example.org"), Rtype::HIP).unwrap_err();
    let DnsError::NoAnswer { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::TimedOut);
    assert!(server.asked() >= 4, "{} questions", server.asked());
}

/// The questions that follow do not wait for the silent one again.
#[test]
fn the_resolver_that_has_answered_is_asked_first() {
    let silent = Server::start(|_, _, _| vec![]);
    let identity = identity(Algorithm::Ed25519);
    let server = Server::with(Zone::of(&[("host.example.org", hip(&identity, &["rvs.example.org"]))]));
    let (addresses, timeout) = (vec![silent.address, server.address], Duration::from_secs(1));
    let resolver = Resolver::new(Resolvers { addresses, timeout, attempts: 1, trusts_ad: false });
    let found = find_host(&resolver, &name("host.example.org"), false).unwrap();
    assert_eq!((found.identity, found.resolver), (identity, server.address));
    assert!(silent.asked() <= 2, "the first question, and its repetition; not {}", silent.asked());
}

#[test]
fn a_question_asks_for_validation() {
    let query = Query::new(0x1234, &name("host.example.org"), Rtype::HIP, true);
    let message = Message::from_octets(query.bytes()).unwrap();
    let header = message.header();
    assert!(header.id() == 0x1234 && header.rd() && header.ad() && !header.qr());
    assert_eq!(message.opt().unwrap().udp_payload_size(), 1232);
    let question = message.sole_question().unwrap();
    assert_eq!((question.qname().to_string().as_str(), question.qtype().to_int()), ("host.example.org", 55));
}

/// CNAMEs that lead in a circle end.
#[test]
fn a_circle_of_aliases_has_no_records() {
    let query = Query::new(1, &name("a.example.org"), Rtype::A, false);
    let asked = Message::from_octets(query.bytes()).unwrap();
    let mut answer = MessageBuilder::new_vec().start_answer(&asked, Rcode::NOERROR).unwrap();
    for (owner, target) in [("a.example.org", "b.example.org"), ("b.example.org", "a.example.org")] {
        answer.push((name(owner), 60, Cname::new(name(target)))).unwrap();
    }
    assert_eq!(query.read(&answer.finish()), Some(Reading::Malformed));
}

proptest! {
    /// Damaged answers, and made-up ones behind the right head, are read or refused without a panic. Records are those of the question's name.
    #[test]
    fn any_answer_is_read(
        damage in prop::collection::vec((12_usize..300, any::<u8>()), 0..12),
        cut in 0_usize..300,
        tail in prop::collection::vec(any::<u8>(), 0..60),
        counts in prop::option::of(any::<[u8; 6]>()),
    ) {
        let zone = Zone::of(&[
            ("www.example.org", Data::Alias("host.example.org")),
            ("host.example.org", Data::V6("2001:db8::7")),
            ("host.example.org", Data::V6("2001:db8::8")),
        ]);
        let query = Query::new(7, &name("www.example.org"), Rtype::AAAA, true);
        let whole = zone.reply(&Message::from_octets(query.bytes()).unwrap());
        let of = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets().to_vec();
        let data = vec![of("2001:db8::7"), of("2001:db8::8")];
        prop_assert_eq!(query.read(&whole), Some(Reading::Records { is_validated: false, data }));
        let mut bytes = whole[..cut.min(whole.len())].to_vec();
        bytes.extend(tail);
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let (Some(counts), Some(place)) = (counts, bytes.get_mut(6..12)) {
            place.copy_from_slice(&counts);
        }
        let reading = query.read(&bytes);
        prop_assert!(bytes.len() >= 12 || reading.is_none());
        let _ = query.read(&[&whole[..12], &bytes].concat());
    }
}
