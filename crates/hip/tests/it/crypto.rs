//! The puzzle, Diffie-Hellman, keying material, MACs and the cipher of ENCRYPTED.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::crypto::{
    DhError, DhGroup, DhKeyPair, HipCipher, Keymat, PuzzleSearch, Rhash, lifetime_to_wire, puzzle_lifetime,
    verify_solution,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{hit, seeded, unhex};

const HASHES: [Rhash; 3] = [Rhash::Sha256, Rhash::Sha384, Rhash::CShake128];

#[test]
fn solutions_solve_their_puzzle_alone() {
    let (i, r) = (hit("2001:25::1"), hit("2001:25::2"));
    let mut rng = seeded(1);
    for rhash in HASHES {
        for difficulty in [0, 1, 7, 8, 9, 12] {
            let random = Bytes::from(vec![difficulty; rhash.output_len()]);
            let mut search = PuzzleSearch::new(rhash, difficulty, random.clone(), i, r, &mut rng);
            let solution = search.search(1 << 20).expect("2^20 attempts for at most 12 bits");
            assert_eq!(solution.len(), rhash.output_len());
            assert!(verify_solution(rhash, difficulty, &random, i, r, &solution));
            let hash = rhash.digest(&[&random, &i.0.octets(), &r.0.octets(), &solution]);
            let low = u32::from_be_bytes(hash[hash.len() - 4..].try_into().unwrap());
            assert!(low.trailing_zeros() >= u32::from(difficulty), "the lowest bits, by number");
            if difficulty >= 9 {
                assert!(!verify_solution(rhash, difficulty, &random, r, i, &solution), "for the other direction");
                assert!(!verify_solution(rhash, 32, &random, i, r, &solution), "not for 32 bits");
            }
        }
        assert!(!verify_solution(rhash, 255, &[], i, r, &[]) || rhash.output_len() * 8 > 255);
    }
}

#[test]
fn a_search_stops_at_its_budget_and_resumes() {
    let (i, r) = (hit("2001:25::1"), hit("2001:25::2"));
    let mut search = PuzzleSearch::new(Rhash::Sha256, 10, Bytes::from_static(&[3; 32]), i, r, &mut seeded(2));
    assert_eq!(search.search(0), None);
    let steps = (1_u32..).find(|_| search.search(16).is_some()).unwrap();
    assert!((1..2000).contains(&steps), "{steps} steps of 16 for 1,024 attempts on average");
    let mut hopeless = PuzzleSearch::new(Rhash::Sha256, 255, Bytes::from_static(&[3; 32]), i, r, &mut seeded(2));
    assert_eq!(hopeless.search(1000), None);
}

#[test]
fn lifetimes_of_puzzles() {
    assert_eq!(puzzle_lifetime(32), Duration::from_secs(1));
    assert_eq!(puzzle_lifetime(37), Duration::from_secs(32));
    assert_eq!(puzzle_lifetime(31), Duration::from_millis(500));
    assert_eq!(puzzle_lifetime(0), Duration::ZERO);
    assert_eq!(puzzle_lifetime(255), Duration::from_secs(1 << 32));
    assert_eq!(lifetime_to_wire(Duration::from_secs(40)), 37);
    assert_eq!(lifetime_to_wire(Duration::ZERO), 32);
}

// Claim: Both sides agree on a secret with every group, and refuse elements that would reveal it.
// Tests: `crypto::the_ends_of_a_modp_group`, `crypto::a_modp_value_without_leading_zeros`
#[test]
fn every_group_agrees() {
    let mut rng = seeded(3);
    for group in DhGroup::ALL {
        let (one, other) = (DhKeyPair::generate(group, &mut rng), DhKeyPair::generate(group, &mut rng));
        assert_eq!(one.public().len(), group.public_len(), "{group:?}");
        let keys = |pair: &DhKeyPair, public: &[u8]| {
            let secret = pair.agree(public).unwrap();
            Keymat::new(Rhash::Sha256, secret, hit("::1"), hit("::2"), &[1], &[2]).draw(0, 32).unwrap()
        };
        assert_eq!(keys(&one, &other.public()), keys(&other, &one.public()), "{group:?}");
        assert_ne!(keys(&one, &other.public()), keys(&one, &one.public()), "{group:?}");
        assert_eq!(DhGroup::from_id(group.id()), Some(group));
        let expected = group.public_len();
        for len in [0, expected + 1] {
            assert_eq!(one.agree(&vec![1; len]).map(|_| ()), Err(DhError::Length { len, expected }));
        }
        let is_number = matches!(group, DhGroup::Modp1536 | DhGroup::Modp2048 | DhGroup::Modp3072);
        let short = if is_number { DhError::Element } else { DhError::Length { len: 1, expected } };
        assert_eq!(one.agree(&[1]).map(|_| ()), Err(short));
        assert_eq!(one.agree(&vec![0; expected]).map(|_| ()), Err(DhError::Element), "{group:?}: zero");
        assert_eq!(one.agree(&vec![0xff; expected]).map(|_| ()), Err(DhError::Element), "{group:?}: all ones");
        let mut one_only = vec![0; expected];
        one_only[expected - 1] = 1;
        assert_eq!(one.agree(&one_only).map(|_| ()), Err(DhError::Element), "{group:?}: one");
    }
    assert_eq!(DhGroup::from_id(10), None, "SECP160R1");
}

/// RFC 7401 section 5.2.7 gives a public value its own length: a number may lack its leading zeros.
#[test]
fn a_modp_value_without_leading_zeros() {
    let pair = DhKeyPair::generate(DhGroup::Modp1536, &mut seeded(4));
    let keys = |public: &[u8]| {
        let secret = pair.agree(public).unwrap();
        Keymat::new(Rhash::Sha256, secret, hit("::1"), hit("::2"), &[1], &[2]).draw(0, 32).unwrap()
    };
    let mut padded = vec![0; 192];
    padded[191] = 3;
    assert_eq!(keys(&[3]), keys(&padded));
}

/// The modulus minus one is an element of order 2; the number below it is the greatest that is accepted.
#[test]
fn the_ends_of_a_modp_group() {
    let pair = DhKeyPair::generate(DhGroup::Modp1536, &mut seeded(4));
    let mut modulus = unhex(
        "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD
         EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED
         EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F
         83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA237327FFFFFFFFFFFFFFFF",
    );
    assert_eq!(pair.agree(&modulus).map(|_| ()), Err(DhError::Element));
    *modulus.last_mut().unwrap() = 0xfe;
    assert_eq!(pair.agree(&modulus).map(|_| ()), Err(DhError::Element));
    *modulus.last_mut().unwrap() = 0xfd;
    assert!(pair.agree(&modulus).is_ok());
}

/// RFC 7401 section 6.5: one material for both hosts, drawn by index, the greater HIT first.
#[test]
fn keying_material() {
    let (i, r) = (hit("2001:21::1"), hit("2001:21::2"));
    let mut rng = seeded(5);
    let (one, other) = (DhKeyPair::generate(DhGroup::P256, &mut rng), DhKeyPair::generate(DhGroup::P256, &mut rng));
    let keymat = |one_hit, other_hit| {
        let secret = one.agree(&other.public()).unwrap();
        Keymat::new(Rhash::Sha256, secret, one_hit, other_hit, &[1; 32], &[2; 32])
    };
    let both = [keymat(i, r), keymat(r, i)].map(|keymat| keymat.draw(0, 300).unwrap());
    assert_eq!(both[0], both[1], "the order of the HITs does not matter");
    assert_eq!(keymat(i, r).draw(200, 100).unwrap(), both[0][200..], "bytes have an index");
    assert!(keymat(i, r).draw(0, 255 * 32).is_ok());
    assert_eq!(keymat(i, r).draw(255 * 32, 1).unwrap_err().available, 255 * 32);

    // The host with the greater HIT draws first (RFC 7401 section 6.5).
    let (out_i, in_i, index) = keymat(i, r).hip_keys(HipCipher::Aes128Cbc, i, r).unwrap();
    let (out_r, in_r, _) = keymat(i, r).hip_keys(HipCipher::Aes128Cbc, r, i).unwrap();
    assert_eq!((&out_i, &in_i), (&in_r, &out_r));
    assert_eq!(index, 2 * (16 + 32));
    assert_eq!(out_r.encryption, both[0][..16]);
    assert_eq!(out_r.integrity, both[0][16..48]);
    assert_eq!(out_i.encryption, both[0][48..64]);
}

/// RFC 4231 section 4.3.
// Claim: MACs equal those of RFC 4231, and for HIT suite 5 those of NIST's sample of KMAC128 and of PyCryptodome; HKDF equals RFC
// 5869's example; keying material is the same on both sides.
// Tests: `crypto::the_mac_of_suite_5_is_kmac128`, `crypto::keying_material`, `hkdf_of_the_rfc`, `hkdf_over_cshake_uses_hmac`
#[test]
fn macs() {
    let (key, message) = (b"Jefe".as_slice(), b"what do ya want for nothing?".as_slice());
    let expected = unhex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    assert_eq!(Rhash::Sha256.mac(key, message), expected);
    assert!(Rhash::Sha256.verify_mac(key, message, &expected));
    assert!(!Rhash::Sha256.verify_mac(key, message, &expected[..31]), "no truncation");
    let sha384 =
        unhex("af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649");
    assert_eq!(Rhash::Sha384.mac(key, message), sha384);
    for rhash in HASHES {
        let tag = rhash.mac(key, message);
        assert_eq!(tag.len(), rhash.output_len());
        assert!(rhash.verify_mac(key, message, &tag));
        assert!(!rhash.verify_mac(b"jefe", message, &tag));
    }
}

/// RFC 9374 section 3.4.2: KMAC128. The first sample of NIST's for KMAC, and one from PyCryptodome with a key longer than a block.
#[test]
fn the_mac_of_suite_5_is_kmac128() {
    let key: Vec<u8> = (0x40..0x60).collect();
    let expected = unhex("e5780b0d3ea6f7d3a429c5706aa43a00fadbd7d49628839e3187243f456ee14e");
    assert_eq!(Rhash::CShake128.mac(&key, &[0, 1, 2, 3]), expected);
    let long: Vec<u8> = (0..200).collect();
    let expected = unhex("9b7c1b79206dbc207a2f518824b491336fb6d9f0dd69c77c3ddbd34ccce63ad5");
    assert_eq!(Rhash::CShake128.mac(&long, b"message"), expected);
    assert!(Rhash::CShake128.verify_mac(&long, b"message", &expected));
    assert!(!Rhash::CShake128.verify_mac(&long, b"message", &expected[..31]), "no truncation");
    // SHAKE128 of the empty message (FIPS 202).
    let empty = unhex("7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26");
    assert_eq!(Rhash::CShake128.digest(&[]), empty);
}

proptest! {
    #[test]
    fn what_is_encrypted_is_decrypted(data in vec(any::<u8>(), 0..200), index in 0_usize..3, at in any::<usize>()) {
        let cipher = HipCipher::ALL[index];
        let key = vec![9; cipher.key_len()];
        let encrypted = cipher.encrypt(&key, &data, &mut seeded(6)).unwrap();
        prop_assert_eq!(cipher.decrypt(&key, &encrypted).unwrap(), data);
        if cipher != HipCipher::Null {
            prop_assert!(cipher.encrypt(&key[1..], &encrypted, &mut seeded(6)).is_err());
            // Truncated to any length: an error or other data, never a panic.
            let _ = cipher.decrypt(&key, &encrypted[..at % encrypted.len()]);
        }
    }
}
