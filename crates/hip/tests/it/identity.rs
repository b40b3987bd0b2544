//! Identities: encodings, tags, signatures.

use bytes::Bytes;
use holdover_hip::codec::{DomainId, HostId, Parameter};
use holdover_hip::identity::{
    Algorithm, Hit, HitSuite, HostIdentity, IdentityError, KeyPair, RecordKeyError, drip_entity_tag,
};
use proptest::prelude::*;

use crate::support::{hit, key, seeded, unhex};

const ALGORITHMS: [Algorithm; 4] = [Algorithm::Ed25519, Algorithm::EcdsaP256, Algorithm::EcdsaP384, Algorithm::Rsa];

fn host_id(algorithm: u16, identity: &[u8]) -> HostId {
    HostId { algorithm, identity: Bytes::copy_from_slice(identity), domain: DomainId::default() }
}

/// Keys and tags made by public implementations of RFC 9374, and the upper half of the example in its appendix B.1.
// Claim: Tags equal those of other implementations and manual computations by RFC 7343; keys equal those of RFC 8032.
// Tests: `identity::hits_by_hand`, `identity::the_host_identity_of_a_known_seed`
#[test]
fn drip_entity_tags_of_other_implementations() {
    let head = unhex("00010000");
    for (public, raa, hda, tag) in [
        (
            "8b65b265a496e32046cfa378b5a5fb2e877a97723e557cb5f0d21848bfe94477",
            1000,
            2000,
            "2001:30:fa07:d005:31e0:1aed:4e7e:cf5c",
        ),
        (
            "b80bc263962420fbf1454e61bb149fcd1bdc447195b12d63c69e7fb7aeaac3ac",
            1000,
            2000,
            "2001:30:fa07:d005:5584:4fa7:8f0d:14d7",
        ),
    ] {
        let identity = [head.clone(), unhex(public)].concat();
        assert_eq!(drip_entity_tag(raa, hda, &identity), Some(hit(tag)));
    }
    let upper = drip_entity_tag(10, 20, &[0; 36]).unwrap().0.to_bits() >> 64;
    assert_eq!(upper, 0x2001_0030_0280_1405);
    assert_eq!(drip_entity_tag(1 << 14, 0, &[0; 36]), None);
}

/// RFC 8032 section 7.1, test 1: the public key, as RFC 9374 section 3.4.1.1 encodes it.
#[test]
fn the_host_identity_of_a_known_seed() {
    let seed = unhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
    let pair = KeyPair::from_secret(Algorithm::Ed25519, &seed).unwrap();
    let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    assert_eq!(pair.identity().encoded()[..], unhex(&format!("00010000{public}")));
    assert_eq!(pair.hit().suite(), Some(HitSuite::EddsaCshake128));
    assert_eq!(pair.secret()[..], seed);
}

/// HITs computed in Python from RFC 7343 section 2 and NIST SP 800-185: the middle 96 bits of the hash of context ID and
/// identity, and cSHAKE128 with the context ID as customization.
#[test]
fn hits_by_hand() {
    let identity = b"\x03\x01\x00\x01holdover";
    assert_eq!(HitSuite::RsaSha256.hit(identity), hit("2001:21:9247:4daf:da5:56a5:6175:d82f"));
    assert_eq!(HitSuite::EcdsaSha384.hit(identity), hit("2001:22:c998:db29:e815:99e7:d06b:d1a"));
    assert_eq!(HitSuite::EddsaCshake128.hit(identity), hit("2001:25:24bd:132c:508d:5728:59f7:cac"));
}

#[test]
fn the_suite_is_in_the_hit() {
    for (suite, text) in [
        (HitSuite::RsaSha256, "2001:21::"),
        (HitSuite::EcdsaSha384, "2001:22::"),
        (HitSuite::EddsaCshake128, "2001:25::"),
    ] {
        assert_eq!(hit(text).suite(), Some(suite));
        assert_eq!(HitSuite::from_id(suite.id()), Some(suite));
        assert_eq!(suite.hit(b"key").suite(), Some(suite));
    }
    assert_eq!(hit("2001:23::").suite(), None, "ECDSA_LOW");
    assert_eq!(hit("2001:35::").suite(), None, "a DRIP Entity Tag is no HIT");
    assert_eq!(hit("2001:db8::5").suite(), None);
    assert_eq!(Hit::UNSPECIFIED.suite(), None);
}

// Claim: Every kind of key signs, and survives encoding and decoding; weak, malformed and foreign keys and damaged signatures are
// refused.
// Tests: `identity::identities_that_are_refused`, `identity::damage_never_verifies`
#[test]
fn every_algorithm_signs_and_is_read_again() {
    let mut rng = seeded(1);
    for algorithm in ALGORITHMS {
        let pair = key(algorithm, 7);
        let domain = DomainId { kind: 1, id: Bytes::from_static(b"\x05alice\x07example\x00") };
        let read = HostIdentity::from_host_id(&pair.identity().host_id(domain)).unwrap();
        assert_eq!(&read, pair.identity());
        assert_eq!((read.hit(), read.algorithm()), (pair.hit(), algorithm));
        let again = KeyPair::from_secret(algorithm, &pair.secret()).unwrap();
        assert_eq!(again.hit(), pair.hit());

        let signature = again.sign(b"message", &mut rng);
        assert!(read.verify(b"message", &signature), "{algorithm:?}");
        assert!(!read.verify(b"massage", &signature), "{algorithm:?}");
        assert!(!key(algorithm, 8).identity().verify(b"message", &signature), "{algorithm:?}: another key");
        let mut other = signature.clone();
        other.algorithm = 99;
        assert!(!read.verify(b"message", &other), "{algorithm:?}: another algorithm");
        for len in [0, 1, signature.signature.len() - 1] {
            let mut cut = signature.clone();
            cut.signature = cut.signature.slice(..len);
            assert!(!read.verify(b"message", &cut), "{algorithm:?}: {len} bytes");
        }
    }
}

#[test]
fn identities_that_are_refused() {
    let read = |algorithm, identity: &[u8]| HostIdentity::from_host_id(&host_id(algorithm, identity)).map(|_| ());
    assert_eq!(read(3, &[0; 64]), Err(IdentityError::Algorithm { algorithm: 3 }), "DSA");
    assert_eq!(read(9, &[0; 43]), Err(IdentityError::Algorithm { algorithm: 9 }), "ECDSA_LOW");
    assert_eq!(read(7, &[0, 3, 4, 0]), Err(IdentityError::Curve { curve: 3 }));
    assert_eq!(read(7, &[&[0, 1, 4][..], &[1; 64]].concat()), Err(IdentityError::Key), "not on the curve");
    assert_eq!(read(7, &[0]), Err(IdentityError::Key));
    assert_eq!(read(13, &[&[0, 3, 0, 0][..], &[1; 57]].concat()), Err(IdentityError::Curve { curve: 3 }), "Ed448");
    assert_eq!(read(13, &[&[0, 1, 0, 0][..], &[1; 31]].concat()), Err(IdentityError::Key));
    let identity_point = [&[0, 1, 0, 0, 1][..], &[0; 31]].concat();
    assert_eq!(read(13, &identity_point), Err(IdentityError::Key), "of small order");
    assert_eq!(read(5, &[]), Err(IdentityError::Key));
    let short = [&[3, 1, 0, 1][..], &[0xff; 128]].concat();
    assert_eq!(read(5, &short), Err(IdentityError::Key), "1024 bits");
    let even = [&[3, 1, 0, 1][..], &[0xfe; 256]].concat();
    assert_eq!(read(5, &even), Err(IdentityError::Key), "an even modulus");
    let long_exponent = [&[0, 1, 0][..], &[0xff; 256], &[0xff; 256]].concat();
    assert_eq!(read(5, &long_exponent), Err(IdentityError::Key), "an exponent of 2048 bits");
    for algorithm in ALGORITHMS {
        assert!(KeyPair::from_secret(algorithm, &[]).is_err());
        assert!(KeyPair::from_secret(algorithm, &[1, 2, 3]).is_err());
    }
    assert!(KeyPair::from_secret(Algorithm::EcdsaP256, &[0; 32]).is_err());
}

/// The octet string of a point is accepted with and without its first byte; each form has its own HIT.
#[test]
fn a_point_may_come_without_its_first_byte() {
    let pair = key(Algorithm::EcdsaP256, 3);
    let encoded = pair.identity().encoded();
    assert_eq!((encoded.len(), &encoded[..3]), (67, &[0, 1, 4][..]));
    let bare = [&encoded[..2], &encoded[3..]].concat();
    let read = HostIdentity::from_host_id(&host_id(7, &bare)).unwrap();
    let signature = pair.sign(b"message", &mut seeded(1));
    assert!(read.verify(b"message", &signature));
    assert_eq!(read.hit(), HitSuite::EcdsaSha384.hit(&bare));
    assert_ne!(read.hit(), pair.hit());
}

/// The numbers of IPSECKEY, and the formats of RFC 3110, RFC 6605 and RFC 8080.
// Claim: A public key survives the format of DNS records (RFC 8005 section 5), for each kind of key; a record whose HIT is not the hash of its
// key is refused, and so are algorithms, keys and HIT suites that are not supported.
// Tests: `identity::records_that_are_no_identity`, `identity::a_point_of_a_record_has_the_form_of_its_hit`
#[test]
fn keys_are_read_from_resource_records() {
    for (algorithm, number, len) in [
        (Algorithm::Ed25519, 4, 32),
        (Algorithm::EcdsaP256, 3, 64),
        (Algorithm::EcdsaP384, 3, 96),
        (Algorithm::Rsa, 2, 4 + 256),
    ] {
        let pair = key(algorithm, 9);
        let (kind, public) = pair.identity().resource_record();
        assert_eq!((kind, public.len()), (number, len), "{algorithm:?}");
        let read = HostIdentity::from_resource_record(kind, &public, pair.hit());
        assert_eq!(read.as_ref(), Ok(pair.identity()), "{algorithm:?}");
        let other = key(algorithm, 10).hit();
        let error = HostIdentity::from_resource_record(kind, &public, other).unwrap_err();
        assert_eq!(error, RecordKeyError::Mismatch { hit: other, of_key: pair.hit() }, "{algorithm:?}");
    }
    let seed = unhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
    let pair = KeyPair::from_secret(Algorithm::Ed25519, &seed).unwrap();
    let public = unhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    assert_eq!(pair.identity().resource_record(), (4, Bytes::from(public)));
}

/// A HIT made of a HOST_ID without the first byte of the point is found as well, and stays the HIT of the identity.
#[test]
fn a_point_of_a_record_has_the_form_of_its_hit() {
    let pair = key(Algorithm::EcdsaP384, 3);
    let encoded = pair.identity().encoded();
    let bare = HostIdentity::from_host_id(&host_id(7, &[&encoded[..2], &encoded[3..]].concat())).unwrap();
    let (kind, public) = bare.resource_record();
    assert_eq!((kind, &public), (3, &pair.identity().resource_record().1));
    assert_eq!(HostIdentity::from_resource_record(kind, &public, bare.hit()), Ok(bare));
}

#[test]
fn records_that_are_no_identity() {
    let read =
        |algorithm, key: &[u8]| HostIdentity::from_resource_record(algorithm, key, hit("2001:25::1")).unwrap_err();
    for algorithm in [0, 1, 5, 255] {
        assert_eq!(read(algorithm, &[1; 32]), RecordKeyError::Algorithm { algorithm });
    }
    assert_eq!(read(4, &[1; 57]), IdentityError::Curve { curve: 3 }.into(), "Ed448");
    assert_eq!(read(4, &[1; 31]), IdentityError::Key.into());
    assert_eq!(read(3, &[1; 64]), IdentityError::Key.into(), "not on the curve");
    for len in [0, 32, 65, 97, 132] {
        assert_eq!(read(3, &vec![4; len]), IdentityError::Key.into(), "{len} bytes");
    }
    let short = [&[3, 1, 0, 1][..], &[0xff; 128]].concat();
    assert_eq!(read(2, &short), IdentityError::Key.into(), "RSA of 1024 bits");
    // Of HIPv1, a DRIP entity tag of this very key, and an address.
    let pair = key(Algorithm::Ed25519, 9);
    let (kind, public) = pair.identity().resource_record();
    let tag = drip_entity_tag(1, 2, pair.identity().encoded()).unwrap();
    for other in [hit("2001:10::1"), tag, hit("2001:db8::1")] {
        let error = HostIdentity::from_resource_record(kind, &public, other).unwrap_err();
        assert_eq!(error, RecordKeyError::Suite { hit: other });
    }
}

proptest! {
    /// Damaged identities and signatures are errors, never panics, and never pass.
    #[test]
    fn damage_never_verifies(algorithm in 0_usize..3, at in 0_usize..64, bit in 0_u8..8) {
        let pair = key(ALGORITHMS[algorithm], 5);
        let mut signature = pair.sign(b"message", &mut seeded(2));
        let mut bytes = signature.signature.to_vec();
        let index = at % bytes.len();
        bytes[index] ^= 1 << bit;
        signature.signature = bytes.into();
        prop_assert!(!pair.identity().verify(b"message", &signature));
        let mut identity = pair.identity().encoded().to_vec();
        let index = at % identity.len();
        identity[index] ^= 1 << bit;
        if let Ok(other) = HostIdentity::from_host_id(&host_id(pair.identity().algorithm().number(), &identity)) {
            prop_assert_ne!(other.hit(), pair.hit());
        }
        let _ = Parameter::HostId(host_id(13, &identity)).kind();
    }
}
