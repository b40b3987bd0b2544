//! R1, I2 and R2 of an exchange that no code of this crate has made.
//!
//! A Python script composed them from RFC 7401 sections 5.2, 6.3 to 6.5 and 5.3: `hashlib` for HITs (RFC 7343) and the puzzle, `hmac` for
//! HIP_MAC and HIP_MAC_2, and `cryptography` 48.0 for ECDH on P-256, ECDSA with SHA-384, and HKDF with SHA-384. Private keys are SHA-256 of
//! "initiator", "responder", "dh initiator" and "dh responder".

use std::convert::Infallible;

use holdover_hip::codec::{HipPacket, Parameter, Received, kind};
use holdover_hip::crypto::{DhGroup, DhKeyPair, HipCipher, Keymat, Rhash, verify_solution};
use holdover_hip::identity::{Hit, HostIdentity};
use holdover_wire::{Packet, Payload};
use rand_core::{TryCryptoRng, TryRng};

use crate::support::{address, hit, unhex};

const R1: &str = "\
    3b2e0221fdc80000200100225e00b6031978be6e85fb4e7e20010022dcea9bd2f186cea97b90e0090081000c00000000000000000000000701010034\
    082512342051ff7a91bcc6245fe7c3c4bdfcb0538553f73c54100c686a6fc0279354d12ecb4b7589a60a516c4fabadbeb622f39701ff000107000000\
    0201004307004055a52de6852eb190c0cd017a832d61d42b143eb888d01e24e0f790774cedae09fb3961f6817d9e1614febab2b09980d44c510d6ae1\
    dca4fb296901a6eb51af4900024300020002000002c1004900430000000700010466cee9171e2e03690838de03755ab8349f937d0afdf5477d8d7d2b\
    3458822ef3e8d48268bc7eaad4344b0095ebdbc3b24dc0d27b6cbac99909919f84a41d6a9200000002cb000120000000080100020fff00000fff0004\
    00000008f0c10042000734b0bf35ccba9750fea9ec0e04ab635c08e6442e81d81c532903995bc6083f0a35bfb5f247ad4a6776116ea9aa69b67cf5b3\
    e49ae423b90e930dc93bc63ec88f0000\
";
const I2: &str = "\
    3b3b0321e650000020010022dcea9bd2f186cea97b90e009200100225e00b6031978be6e85fb4e7e0041000c0000008000000000000010010081000c\
    00000000000000000000000701410064080012342051ff7a91bcc6245fe7c3c4bdfcb0538553f73c54100c686a6fc0279354d12ecb4b7589a60a516c\
    4fabadbeb622f3972bbbf88015d4927266078fafe8e71be899cb0caef8a554a47a744bb1fd5d668f05759b9ad8140cc0fc51971a8124c9ac02010043\
    070040635d4b6c0d2972b5303a102873ff310994eb7789672ad5550212458253ed879c1c4a0f3e3dc72a418aa0c93ce5c26d45514a3827eb5bea63e8\
    49dadfa2fd6e9900024300020002000002c10049004300000007000104e81d753d1bcee97c5db618c490fc96115376079eafd8d5f4b5d41edfd09c01\
    3ce4aee9d28af2134e60c1b3e424827986a3493f2ec2049d5712b472fb641e685f000000080100020fff00000fff000400000008f04100303148850f\
    f8ca2370da04cbafbe8e2815f19bf597518269cbedf166be0741f9de0c02090c3ee5ca7ee5b9790f53d58b0000000000f1010042000788ca47467b36\
    698017b830485637b27b9f2e7112cbbc844d5da2213dabbf10feff6fcd152971d6f9d92146f797df27fb911a6985bd4213526ebf71ee606982480000\
";
const R2: &str = "\
    3b160421553f0000200100225e00b6031978be6e85fb4e7e20010022dcea9bd2f186cea97b90e0090041000c000000800000000000002001f0810030\
    7ab4742c2b3333824186bb1801ab851488f21f7df7358fac6bdd23cb0ce23931cacdc6e89359680d6d5cdc29b52aaa3300000000f10100420007cc5b\
    5f921fbc5022c57c30963e5cc193656cd02202dcebc88d683afed13d946fdb8ef4a3feff4f409223aecd27cd05e4928a4305bc7808517fe9504cc2cb\
    3b820000\
";
/// The private Diffie-Hellman values of initiator and responder.
const PRIVATE: [&str; 2] = [
    "76f4c75c61e93f70dd8f401bc10413bde62d5b5ec8d3e022d0f5acf5dec4dcc8",
    "c7773fb2556d613bb91aa1e1521e433ebba42d5a52116b1b831be3e7a932ed02",
];
/// The bytes drawn from KEYMAT: the HIP keys of the host with the greater HIT, those of the other, and as many for ESP.
const KEYMAT: &str = "\
    9eb809c00de17c5b1d114fb93c4f0a3585d3f150536cf4a5599d519905decc8666c143462fd3d27136124fe8f28dd5ee411de68fa29ba9c97c9e9a6f\
    020ccaf6dd86b8e1aab1e976762069ca3c472533b0ccb1922264f85ed7b089675b842208732a951df61ccc996b1b7572f37dd268ab7aa4dc41d4caa6\
    764c0d90c9bde6197aba706fcf38cbff06c04b306bcac86305cfd96f5f862f94222a3be3366daa1c72e6b58d3edde8fb52975c0231ed20b7a965d438\
    22811e5be17dd6a3b990c78592af48906945cc03368bc2d907d709e50de06969c349938b828c378801bc9d3e\
";

const INITIATOR: &str = "2001:22:dcea:9bd2:f186:cea9:7b90:e009";
const RESPONDER: &str = "2001:22:5e00:b603:1978:be6e:85fb:4e7e";

/// Returns a number once, with its lowest byte first, as the curves' crates draw it.
struct Fixed(Vec<u8>);

impl TryRng for Fixed {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!("bytes are asked for")
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        panic!("bytes are asked for")
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        out.copy_from_slice(&std::mem::take(&mut self.0));
        out.reverse();
        Ok(())
    }
}

impl TryCryptoRng for Fixed {}

fn received(hex: &str, from: &str, to: &str) -> Received {
    let payload = Payload::Other { protocol: 139, payload: unhex(hex).into() };
    HipPacket::parse(&Packet::new(address(from), address(to), payload)).unwrap()
}

/// R1, I2 and R2; the checksums of R1 and R2 do not change if both addresses are exchanged.
fn packets() -> [Received; 3] {
    [R1, I2, R2].map(|hex| received(hex, "192.0.2.1", "198.51.100.2"))
}

fn find<T>(received: &Received, select: impl Fn(&Parameter) -> Option<T>) -> T {
    received.packet.parameters.iter().find_map(select).unwrap()
}

fn identity(received: &Received) -> HostIdentity {
    find(received, |it| if let Parameter::HostId(id) = it { HostIdentity::from_host_id(id).ok() } else { None })
}

fn public(received: &Received) -> Vec<u8> {
    find(received, |it| if let Parameter::DiffieHellman { public, .. } = it { Some(public.to_vec()) } else { None })
}

/// The keying material, from each host's private value.
fn keymats() -> [Keymat; 2] {
    let [r1, i2, _] = packets();
    let (i, j) =
        find(
            &i2,
            |it| if let Parameter::Solution(it) = it { Some((it.random.clone(), it.solution.clone())) } else { None },
        );
    let pairs = PRIVATE.map(|private| DhKeyPair::generate(DhGroup::P256, &mut Fixed(unhex(private))));
    let publics = [public(&i2), public(&r1)];
    assert_eq!([pairs[0].public(), pairs[1].public()], [publics[0].clone(), publics[1].clone()]);
    [(0, 1), (1, 0)].map(|(own, peer)| {
        let secret = pairs[own].agree(&publics[peer]).unwrap();
        Keymat::new(Rhash::Sha384, secret, hit(RESPONDER), hit(INITIATOR), &i, &j)
    })
}

// Claim: HITs, the puzzle, keying material, MACs and signatures of an R1, I2 and R2 that a Python script made from the RFC, with
// ECDSA and SHA-384, are those of this crate.
// Tests: `vectors::signatures_and_macs_of_another_computation`, `vectors::the_puzzle_of_another_computation`
#[test]
fn keying_material_of_another_computation() {
    for keymat in keymats() {
        let expected = unhex(KEYMAT);
        assert_eq!(keymat.draw(0, expected.len()).unwrap(), expected);
        let (out, back, index) = keymat.hip_keys(HipCipher::Aes128Cbc, hit(INITIATOR), hit(RESPONDER)).unwrap();
        let keys = [out.encryption, out.integrity, back.encryption, back.integrity].concat();
        assert_eq!((&keys[..], index), (&expected[..128], 128));
    }
}

#[test]
fn signatures_and_macs_of_another_computation() {
    let [r1, i2, r2] = packets();
    let (initiator, responder) = (identity(&i2), identity(&r1));
    assert_eq!([initiator.hit(), responder.hit()], [INITIATOR, RESPONDER].map(hit));
    let signature = |received: &Received| {
        find(received, |it| match it {
            Parameter::HipSignature(it) | Parameter::HipSignature2(it) => Some(it.clone()),
            _ => None,
        })
    };
    assert!(responder.verify(&r1.covered_by_signature_2().unwrap(), &signature(&r1)));
    assert!(initiator.verify(&i2.covered_before(kind::HIP_SIGNATURE).unwrap(), &signature(&i2)));
    assert!(responder.verify(&r2.covered_before(kind::HIP_SIGNATURE).unwrap(), &signature(&r2)));

    let [keymat, _] = keymats();
    let (out, back, _) = keymat.hip_keys(HipCipher::Aes128Cbc, hit(INITIATOR), hit(RESPONDER)).unwrap();
    let mac = |received: &Received| {
        find(received, |it| match it {
            Parameter::HipMac(mac) | Parameter::HipMac2(mac) => Some(mac.clone()),
            _ => None,
        })
    };
    assert!(Rhash::Sha384.verify_mac(&out.integrity, &i2.covered_before(kind::HIP_MAC).unwrap(), &mac(&i2)));
    let host_id = find(&r1, |it| if let Parameter::HostId(id) = it { Some(id.clone()) } else { None });
    assert!(Rhash::Sha384.verify_mac(&back.integrity, &r2.covered_by_mac_2(&host_id).unwrap(), &mac(&r2)));
}

#[test]
fn the_puzzle_of_another_computation() {
    let [r1, i2, _] = packets();
    let puzzle = find(&r1, |it| if let Parameter::Puzzle(it) = it { Some(it.clone()) } else { None });
    let solution = find(&i2, |it| if let Parameter::Solution(it) = it { Some(it.clone()) } else { None });
    assert_eq!((puzzle.difficulty, &puzzle.random), (8, &solution.random));
    let [initiator, responder]: [Hit; 2] = [INITIATOR, RESPONDER].map(hit);
    let solves = |one, other| verify_solution(Rhash::Sha384, 8, &puzzle.random, one, other, &solution.solution);
    assert!(solves(initiator, responder));
    assert!(!solves(responder, initiator));
}
