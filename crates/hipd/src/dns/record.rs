//! The HIP resource record (RFC 8005 section 5), as bytes and as text of a zone file (section 6).

use core::fmt;
use core::str::FromStr;

use domain::base::Name;
use domain::base::name::ToName as _;
use domain::dep::octseq::Parser;
use domain::utils::{base16, base64};
use holdover_hip::identity::{Hit, HostIdentity};

use super::DomainName;
use super::error::RecordError;

/// Bytes before the HIT: its length, the algorithm, and the length of the key.
const HEAD_LEN: usize = 4;
/// Bytes of a HIT.
const HIT_LEN: usize = 16;

/// A HIP resource record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HipRecord {
    /// The algorithm of the key, by its number in the IPSECKEY registry.
    pub algorithm: u8,
    /// The HIT, of any length.
    pub hit: Vec<u8>,
    /// The public key, in the format of the algorithm.
    pub public_key: Vec<u8>,
    /// The names of rendezvous servers, the preferred one first.
    pub servers: Vec<DomainName>,
}

impl HipRecord {
    /// The record of a host with this identity.
    pub fn new(identity: &HostIdentity, servers: Vec<DomainName>) -> Self {
        let (algorithm, public_key) = identity.resource_record();
        let hit = identity.hit().0.octets().to_vec();
        Self { algorithm, hit, public_key: public_key.to_vec(), servers }
    }

    /// Reads the data of a record.
    ///
    /// # Errors
    /// [`RecordError`], for the whole record if any part is malformed.
    pub fn parse(data: &[u8]) -> Result<Self, RecordError> {
        let [hit_len, algorithm, high, low, rest @ ..] = data else { return Err(RecordError::Short) };
        let (hit, rest) = rest.split_at_checked(usize::from(*hit_len)).ok_or(RecordError::Short)?;
        let key_len = usize::from(u16::from_be_bytes([*high, *low]));
        let (key, rest) = rest.split_at_checked(key_len).ok_or(RecordError::Short)?;
        let mut parser = Parser::from_ref(rest);
        let mut servers = Vec::new();
        while parser.remaining() > 0 {
            // Without compression (RFC 8005 section 5.6).
            let name = Name::<&[u8]>::parse(&mut parser).map_err(|_| RecordError::Server)?;
            servers.push(name.to_vec());
        }
        let record = Self { algorithm: *algorithm, hit: hit.to_vec(), public_key: key.to_vec(), servers };
        record.check()?;
        Ok(record)
    }

    /// The data of the record.
    ///
    /// # Errors
    /// [`RecordError`] if a field is empty, or too long for its length.
    pub fn emit(&self) -> Result<Vec<u8>, RecordError> {
        self.check()?;
        let hit_len = u8::try_from(self.hit.len()).map_err(|_| RecordError::Long)?;
        let key_len = u16::try_from(self.public_key.len()).map_err(|_| RecordError::Long)?;
        let mut data = Vec::with_capacity(HEAD_LEN + self.hit.len() + self.public_key.len());
        data.extend([hit_len, self.algorithm]);
        data.extend(key_len.to_be_bytes());
        data.extend(&self.hit);
        data.extend(&self.public_key);
        self.servers.iter().for_each(|server| data.extend(server.as_slice()));
        if data.len() > usize::from(u16::MAX) { Err(RecordError::Long) } else { Ok(data) }
    }

    /// The host's identity, whose hash the HIT is.
    ///
    /// # Errors
    /// [`RecordError::HitLength`] and [`RecordError::Identity`].
    pub fn identity(&self) -> Result<HostIdentity, RecordError> {
        let hit: [u8; HIT_LEN] =
            self.hit.as_slice().try_into().map_err(|_| RecordError::HitLength { len: self.hit.len() })?;
        Ok(HostIdentity::from_resource_record(self.algorithm, &self.public_key, Hit(hit.into()))?)
    }

    /// The data in the form that servers read that do not know the type (RFC 3597 section 5), behind `TYPE55`.
    ///
    /// # Errors
    /// Those of [`Self::emit`].
    pub fn unknown_type(&self) -> Result<String, RecordError> {
        let data = self.emit()?;
        Ok(format!("\\# {} {}", data.len(), base16::encode_string(&data)))
    }

    fn check(&self) -> Result<(), RecordError> {
        if self.hit.is_empty() || self.public_key.is_empty() { Err(RecordError::Empty) } else { Ok(()) }
    }
}

/// A name with its final dot. Characters with a meaning in zone files are escaped by their number (RFC 1035 section 5.1).
fn in_zone_file(name: &DomainName) -> String {
    let mut text = name.fmt_with_dot().to_string().replace("\\ ", "\\032");
    for special in ['(', ')', ';', '"', '@', '$'] {
        text = text.replace(special, &format!("\\{:03}", u32::from(special)));
    }
    text
}

impl fmt::Display for HipRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hit, key) = (base16::encode_string(&self.hit), base64::encode_string(&self.public_key));
        write!(f, "{} {hit} {key}", self.algorithm)?;
        self.servers.iter().try_for_each(|server| write!(f, " {}", in_zone_file(server)))
    }
}

impl FromStr for HipRecord {
    type Err = RecordError;

    /// Algorithm, HIT, key and servers, separated by white space, with or without parentheses. Names are absolute.
    fn from_str(text: &str) -> Result<Self, RecordError> {
        let mut fields = text.split(|c: char| c.is_ascii_whitespace() || "()".contains(c)).filter(|it| !it.is_empty());
        let mut next = || fields.next().ok_or(RecordError::Short);
        let algorithm = next()?.parse().map_err(|_| RecordError::Text { what: "algorithm" })?;
        let hit = base16::decode(next()?).map_err(|_| RecordError::Text { what: "HIT" })?;
        let public_key = base64::decode(next()?).map_err(|_| RecordError::Text { what: "public key" })?;
        let servers = fields.map(|name| name.parse().map_err(|_| RecordError::Server));
        let record = Self { algorithm, hit, public_key, servers: servers.collect::<Result<_, _>>()? };
        record.check()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use holdover_hip::identity::{Algorithm, RecordKeyError};
    use proptest::prelude::*;

    use super::*;
    use crate::dns::tests::{identity, name};

    /// The public key of the examples in RFC 8005 section 7: RSA with 1,024 bits.
    const KEY: &str = "AwEAAbdxyhNuSutc5EMzxTs9LBPCIkOFH8cIvM4p9+LrV4e19WzK00+CI6zBCQTdtWsuxKbWIy87UOoJTwkUs7lBu+Upr1gsNrut79ryra+b\
                       SRGQb1slImA8YVJyuIDsj7kwzG7jnERNqnWxZ48AWkskmdHaVDP4BcelrTI3rMXdXF5D";
    const HIT: &str = "200100107B1A74DF365639CC39F1D578";

    /// The examples of RFC 8005 section 7: without, with one, and with two rendezvous servers.
    // Claim: HIP resource records are read and written as bytes and as text as in the examples of RFC 8005; any bytes are a record that is
    // written alike, or an error.
    // Tests: `record::any_bytes_are_a_record_or_an_error`, `record::any_record_survives`, `record::malformed_texts_are_refused`
    #[test]
    fn examples_of_the_rfc() {
        for servers in [vec![], vec!["rvs.example.com."], vec!["rvs1.example.com.", "rvs2.example.com."]] {
            let text = format!("2 {HIT} {KEY} {}", servers.join(" "));
            let record: HipRecord = text.parse().unwrap();
            assert_eq!(record.to_string(), text.trim_end());
            let broken = format!("( 2 {HIT}\n\t{KEY}\n {} )", servers.join("\n  "));
            assert_eq!(broken.parse(), Ok(record.clone()));
            let data = record.emit().unwrap();
            assert_eq!(data[..8], [16, 2, 0, 132, 0x20, 0x01, 0x00, 0x10]);
            assert_eq!(data[20..25], [3, 1, 0, 1, 0xb7], "the exponent, and the first byte of the modulus");
            assert_eq!(data.len() - 20 - 132, servers.iter().map(|server| server.len() + 1).sum::<usize>());
            assert_eq!(HipRecord::parse(&data), Ok(record.clone()));
            // Too short for this crate, and a HIT of HIPv1.
            assert!(record.identity().is_err());
        }
        let one: HipRecord = format!("2 {HIT} {KEY} rvs.example.com").parse().unwrap();
        assert!(one.emit().unwrap().ends_with(b"\x5c\x5e\x43\x03rvs\x07example\x03com\x00"));
    }

    #[test]
    fn a_host_has_a_record() {
        for algorithm in [Algorithm::Ed25519, Algorithm::EcdsaP256, Algorithm::EcdsaP384] {
            let identity = identity(algorithm);
            let record = HipRecord::new(&identity, vec![name("rvs.example.org")]);
            let read = HipRecord::parse(&record.emit().unwrap()).unwrap();
            assert_eq!(read.identity(), Ok(identity));
            let of_text: HipRecord = record.to_string().parse().unwrap();
            assert_eq!(of_text, record);
            let mut other = record.clone();
            other.hit[15] ^= 1;
            assert!(matches!(other.identity(), Err(RecordError::Identity(RecordKeyError::Mismatch { .. }))));
            let unknown = HipRecord { hit: vec![0x20; 16], ..record.clone() };
            assert!(matches!(unknown.identity(), Err(RecordError::Identity(RecordKeyError::Suite { .. }))));
            let short = HipRecord { hit: vec![0x20; 8], ..record };
            assert_eq!(short.identity(), Err(RecordError::HitLength { len: 8 }));
        }
    }

    #[test]
    fn parentheses_of_names_are_no_separators() {
        let text = "2 2001 AQID r\\041s.\\040x\\032y.example. o\\059.example.";
        let record: HipRecord = text.parse().unwrap();
        assert_eq!(record.servers.len(), 2);
        assert_eq!(record.to_string(), text);
        assert_eq!(record.to_string().parse(), Ok(record));
    }

    #[test]
    fn malformed_texts_are_refused() {
        let error = |text: &str| text.parse::<HipRecord>().unwrap_err();
        for short in ["", "2", "2 2001", "( 2 2001 )"] {
            assert_eq!(error(short), RecordError::Short, "{short}");
        }
        assert_eq!(error("256 2001 AQID"), RecordError::Text { what: "algorithm" });
        assert_eq!(error("RSA 2001 AQID"), RecordError::Text { what: "algorithm" });
        assert_eq!(error("2 200 AQID"), RecordError::Text { what: "HIT" });
        assert_eq!(error("2 2001 AQI"), RecordError::Text { what: "public key" });
        assert_eq!(error("2 2001 AQID rvs..example."), RecordError::Server);
    }

    #[test]
    fn fields_that_do_not_fit_are_refused() {
        let record = HipRecord { algorithm: 4, hit: vec![1; 16], public_key: vec![2; 32], servers: Vec::new() };
        let emit = |record: HipRecord| record.emit().unwrap_err();
        assert_eq!(emit(HipRecord { hit: vec![1; 256], ..record.clone() }), RecordError::Long);
        assert_eq!(emit(HipRecord { public_key: vec![1; 65_536], ..record.clone() }), RecordError::Long);
        assert_eq!(emit(HipRecord { public_key: vec![1; 65_520], ..record.clone() }), RecordError::Long);
        assert_eq!(emit(HipRecord { hit: Vec::new(), ..record.clone() }), RecordError::Empty);
        let unknown = HipRecord { hit: vec![0xab], public_key: vec![0xcd], ..record }.unknown_type();
        assert_eq!(unknown.unwrap(), "\\# 6 01040001ABCD");
    }

    proptest! {
        /// Names in the record of a client are no pointers: a record that is read is written as it was.
        #[test]
        fn any_bytes_are_a_record_or_an_error(data in prop::collection::vec(any::<u8>(), 0..80), hit_len in 0_u8..20, key_len in 0_u16..40) {
            let mut data = data;
            if data.len() >= HEAD_LEN && hit_len > 0 {
                data[0] = hit_len;
                data[2..4].copy_from_slice(&key_len.to_be_bytes());
            }
            match HipRecord::parse(&data) {
                Ok(record) => {
                    prop_assert_eq!(record.emit().unwrap(), data);
                    let _ = record.identity();
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn any_record_survives(
            algorithm in any::<u8>(),
            hit in prop::collection::vec(any::<u8>(), 1..256),
            public_key in prop::collection::vec(any::<u8>(), 1..600),
            servers in prop::collection::vec("[a-z0-9-]{1,63}(\\.[a-z0-9-]{1,20}){0,3}", 0..4),
        ) {
            let servers = servers.iter().map(|server| name(server)).collect();
            let record = HipRecord { algorithm, hit, public_key, servers };
            prop_assert_eq!(HipRecord::parse(&record.emit().unwrap()), Ok(record.clone()));
            prop_assert_eq!(record.to_string().parse(), Ok(record));
        }
    }
}
