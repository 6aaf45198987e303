//! Who a process is: one Ed25519 key per role, derived from the cluster key and pinned.
//!
//! Instead of certificates both sides show raw public keys (RFC 7250): a certificate would carry
//! nothing that is checked here, cost a signature at start-up, and need a parser for what a
//! stranger sends. A pin is then a comparison of 44 bytes (RFC 8410 `SubjectPublicKeyInfo`), and
//! the handshake's signature proves that the other side holds the secret half.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ring::hkdf;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError,
    PeerIncompatible, SignatureScheme,
};

use crate::key::{ClusterKey, hex};

/// What a process is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Controller,
    Worker,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Controller => "controller",
            Role::Worker => "worker",
        })
    }
}

/// An Ed25519 public key as DER `SubjectPublicKeyInfo`: a fixed prefix, then 32 bytes.
type Spki = [u8; 44];

const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A role's keys and the keys it expects of others, derived from a [`ClusterKey`].
#[derive(Clone)]
pub struct Identity {
    role: Role,
    signer: Arc<CertifiedKey>,
    controller: Spki,
    worker: Spki,
    reset_secret: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}, {})", self.role, self.fingerprint(self.role))
    }
}

/// Output length of every derivation, in bytes.
struct Seed;

impl hkdf::KeyType for Seed {
    fn len(&self) -> usize {
        32
    }
}

/// HKDF-SHA256 (RFC 5869) of the cluster key for one purpose.
fn derive(key: &ClusterKey, purpose: &str) -> [u8; 32] {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"monarch cluster key 1");
    let mut out = [0; 32];
    let info = [purpose.as_bytes()];
    // Both calls fail only for outputs longer than 255 hashes; this one is a single hash long.
    if let Ok(okm) = salt.extract(key.secret()).expand(&info, Seed) {
        let _ = okm.fill(&mut out);
    }
    assert_ne!(out, [0; 32], "HKDF wrote nothing");
    out
}

fn spki_of(seed: &[u8; 32]) -> Spki {
    // `from_seed_unchecked` refuses only seeds that are not 32 bytes long.
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed of 32 bytes");
    let mut spki = [0; 44];
    spki[..12].copy_from_slice(&SPKI_PREFIX);
    spki[12..].copy_from_slice(pair.public_key().as_ref());
    spki
}

impl Identity {
    /// Derives the identity of a role. The same key gives the same identity on every machine.
    pub fn new(key: &ClusterKey, role: Role) -> Identity {
        let controller_seed = derive(key, "ed25519 controller");
        let worker_seed = derive(key, "ed25519 worker");
        let (controller, worker) = (spki_of(&controller_seed), spki_of(&worker_seed));
        let (seed, spki) = match role {
            Role::Controller => (&controller_seed, controller),
            Role::Worker => (&worker_seed, worker),
        };
        let mut pkcs8 = PKCS8_PREFIX.to_vec();
        pkcs8.extend_from_slice(seed);
        let secret = rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))
            .expect("PKCS#8 of an Ed25519 seed");
        let shown = CertificateDer::from(spki.to_vec());
        Identity {
            role,
            signer: Arc::new(CertifiedKey::new(vec![shown], secret)),
            controller,
            worker,
            reset_secret: derive(key, "stateless reset"),
            provider: Arc::new(provider()),
        }
    }

    /// The role this identity can prove.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The first 8 hex digits of a role's public key, for messages: equal exactly where the
    /// cluster keys are equal.
    pub fn fingerprint(&self, role: Role) -> String {
        fingerprint(self.pin(role))
    }

    fn pin(&self, role: Role) -> &Spki {
        match role {
            Role::Controller => &self.controller,
            Role::Worker => &self.worker,
        }
    }

    /// The role whose public key `shown` is, if it is one of this cluster.
    pub(crate) fn role_of(&self, shown: &[u8]) -> Option<Role> {
        [Role::Controller, Role::Worker].into_iter().find(|role| self.pin(*role) == shown)
    }

    /// Key of the stateless resets (RFC 9000, 10.3) of the endpoint at `port`: a process started
    /// again at the same port can tell its old peers at once that it has forgotten them.
    pub(crate) fn reset_key(&self, port: u16) -> ring::hmac::Key {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.reset_secret);
        let tag = ring::hmac::sign(&key, &port.to_le_bytes());
        ring::hmac::Key::new(ring::hmac::HMAC_SHA256, tag.as_ref())
    }

    /// TLS of the side that accepts: it takes both roles of this cluster and nobody else.
    pub(crate) fn server_tls(&self, alpn: Vec<Vec<u8>>) -> Result<rustls::ServerConfig, TlsError> {
        let resolver = rustls::server::AlwaysResolvesServerRawPublicKeys::new(self.signer.clone());
        let mut config = rustls::ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(self.verifier(&[Role::Controller, Role::Worker])))
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = alpn;
        // A resumed session would skip the proof of the client's key.
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// TLS of the side that connects and expects `role` there; the second value receives the
    /// fingerprint of the key that was shown instead.
    pub(crate) fn client_tls(
        &self,
        role: Role,
        alpn: Vec<Vec<u8>>,
    ) -> Result<(rustls::ClientConfig, Stranger), TlsError> {
        let resolver = rustls::client::AlwaysResolvesClientRawPublicKeys::new(self.signer.clone());
        let verifier = self.verifier(&[role]);
        let stranger = verifier.stranger.clone();
        let mut config = rustls::ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = alpn;
        config.resumption = rustls::client::Resumption::disabled();
        Ok((config, stranger))
    }

    fn verifier(&self, roles: &[Role]) -> PinVerifier {
        PinVerifier {
            pins: roles.iter().map(|role| *self.pin(*role)).collect(),
            provider: self.provider.clone(),
            stranger: Stranger::default(),
        }
    }
}

/// ring's provider with the suite first that QUIC is fastest with, and one key exchange.
fn provider() -> CryptoProvider {
    use rustls::crypto::ring::{cipher_suite, default_provider, kx_group};
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![kx_group::X25519],
        ..default_provider()
    }
}

fn fingerprint(spki: &[u8]) -> String {
    hex(spki.get(12..16).unwrap_or(spki))
}

/// Where a verifier leaves the fingerprint of a key that is not pinned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stranger(Arc<OnceLock<String>>);

impl Stranger {
    pub(crate) fn fingerprint(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

/// Accepts exactly the pinned keys, and only with a valid signature over the handshake.
#[derive(Debug)]
struct PinVerifier {
    pins: Vec<Spki>,
    provider: Arc<CryptoProvider>,
    stranger: Stranger,
}

impl PinVerifier {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), TlsError> {
        // Public keys are no secret: the comparison need not take constant time.
        if self.pins.iter().any(|pin| pin.as_slice() == shown.as_ref()) {
            return Ok(());
        }
        let _ = self.stranger.0.set(fingerprint(shown));
        // This error, and no other, becomes the alert `access_denied`: see `lost.rs`.
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
    }
}

fn no_tls12() -> TlsError {
    PeerIncompatible::Tls12NotOffered.into()
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for PinVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AcceptError, Endpoint, Options};

    #[test]
    fn a_key_gives_one_identity_per_role_everywhere() {
        let key =
            ClusterKey::parse("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
                .unwrap();
        let controller = Identity::new(&key, Role::Controller);
        let worker = Identity::new(&key, Role::Worker);
        assert_eq!(controller.controller, worker.controller);
        assert_eq!(controller.worker, worker.worker);
        assert_ne!(controller.controller, controller.worker);
        assert_eq!(worker.role_of(&controller.controller), Some(Role::Controller));
        assert_eq!(worker.role_of(&worker.worker), Some(Role::Worker));
        assert_eq!(worker.role_of(b"something else"), None);
        let other = Identity::new(&ClusterKey::generate().unwrap(), Role::Worker);
        assert_eq!(worker.role_of(&other.worker), None);
        assert_ne!(other.fingerprint(Role::Controller), worker.fingerprint(Role::Controller));
        // The keys of a cluster must not change between releases: old and new processes would
        // then take each other for strangers.
        assert_eq!(worker.fingerprint(Role::Worker), GOLDEN_WORKER);
        assert_eq!(worker.fingerprint(Role::Controller), GOLDEN_CONTROLLER);
    }

    // From RFC 5869 with HMAC-SHA256 in Python, and the public key from OpenSSL.
    const GOLDEN_WORKER: &str = "35fc149f";
    const GOLDEN_CONTROLLER: &str = "3b805adb";

    /// An identity that expects the keys of `expects` and shows and signs with other ones.
    fn impostor(expects: &Identity, shows: &Identity, signs: &Identity) -> Identity {
        let signer = CertifiedKey::new(shows.signer.cert.clone(), signs.signer.key.clone());
        Identity { signer: Arc::new(signer), ..expects.clone() }
    }

    /// What both sides say when `client` connects to `server`: the side that accepts, then the
    /// side that connects (by its connection's end, where the handshake succeeds for it).
    fn meet(server: Identity, client: Identity) -> (AcceptError, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let long = std::time::Duration::from_secs(20);
        runtime.block_on(async {
            let options = Options::default();
            let server = Endpoint::bind("127.0.0.1:0", &server, &options).await.unwrap();
            let client = Endpoint::bind("127.0.0.1:0", &client, &options).await.unwrap();
            let connect = async {
                match client.connect(server.local_addr(), Role::Controller, long).await {
                    Ok(connection) => connection.closed().await.to_string(),
                    Err(error) => error.to_string(),
                }
            };
            let accept = async { server.accept().await.unwrap().handshake().await.unwrap_err() };
            tokio::time::timeout(long, async { tokio::join!(accept, connect) }).await.unwrap()
        })
    }

    #[test]
    fn a_key_must_be_pinned_and_its_owner_must_sign() {
        let (ours, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
        let (controller, worker) =
            (Identity::new(&ours, Role::Controller), Identity::new(&ours, Role::Worker));
        let (other_controller, other_worker) =
            (Identity::new(&other, Role::Controller), Identity::new(&other, Role::Worker));
        let pairs = [
            // A client that trusts our server but proves another cluster's key.
            (controller.clone(), impostor(&worker, &other_worker, &other_worker)),
            // One that shows our public key without holding its secret.
            (controller.clone(), impostor(&worker, &worker, &other_worker)),
            // A server of another cluster, and one that shows our public key.
            (other_controller.clone(), worker.clone()),
            (impostor(&controller, &controller, &other_controller), worker),
        ];
        for (server, client) in pairs {
            let (accept, connect) = meet(server, client);
            assert!(matches!(accept, AcceptError::WrongKey { .. }), "{accept:?}, {connect}");
            assert!(connect.contains("holds another cluster key"), "{connect}");
        }
    }

    #[test]
    fn another_protocol_is_refused_by_name() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = ClusterKey::generate().unwrap();
        let (tls, _) = Identity::new(&key, Role::Worker)
            .client_tls(Role::Controller, vec![b"h3".into()])
            .unwrap();
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        runtime.block_on(async {
            let options = Options::default();
            let controller = Identity::new(&key, Role::Controller);
            let server = Endpoint::bind("127.0.0.1:0", &controller, &options).await.unwrap();
            let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
            let config = quinn::ClientConfig::new(Arc::new(crypto));
            let connecting =
                client.connect_with(config, server.local_addr(), "example.org").unwrap();
            let accept = async { server.accept().await.unwrap().handshake().await.unwrap_err() };
            let (error, refused) = tokio::join!(accept, connecting);
            assert!(refused.is_err());
            assert!(
                matches!(error, AcceptError::OtherVersion { ours: 1, theirs: None, .. }),
                "{error:?}"
            );
        });
    }
}
