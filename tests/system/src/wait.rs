//! Waiting for a condition of another process, with a deadline and a message that says what did not come.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition without an event of its own is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// Returns the first value that `look` finds. An error of `look` ends the wait: it says that waiting is pointless.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("waited {} s in vain for {what}", limit.as_secs_f64());
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_up_with_the_name_of_what_is_missing() {
        let error = until::<()>("rain", Duration::ZERO, || Ok(None)).unwrap_err();
        assert!(error.to_string().contains("rain"));
    }

    #[test]
    fn takes_the_first_value() {
        let mut looks = 0;
        let found = until("three", Duration::from_secs(5), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.unwrap(), 3);
    }
}
