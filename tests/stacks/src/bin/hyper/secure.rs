//! TLS without OpenSSL.

use std::env::var_os;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// With the certificate and the key that the environment names; `None` where it names none.
pub(crate) fn acceptor() -> Result<Option<TlsAcceptor>> {
    let (Some(certificate), Some(key)) = (var_os("TLS_CERT"), var_os("TLS_KEY")) else { return Ok(None) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)?.collect();
    let key = PrivateKeyDer::from_pem_file(key).context("TLS_KEY is no key")?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain?, key)?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}
