//! Scripted failures and delays (`FAKECUDA_FAIL`, `FAKECUDA_DELAY_US`).

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock;
use crate::error::Error;
use crate::functions::Func;

/// What happens to the calls of each function, by [`Func::index`].
pub(crate) struct Script {
    rules: Vec<Option<Box<Rule>>>,
}

#[derive(Default)]
struct Rule {
    failure: Option<Failure>,
    delay_ns: u64,
    seen: AtomicU64,
}

/// Calls `after..after + times` (counted from 0) fail with `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    after: u64,
    times: u64,
    error: Error,
}

/// The script, or the sentence that says what is wrong with it.
pub(crate) static SCRIPT: LazyLock<Result<Script, String>> = LazyLock::new(|| {
    let var = |name| std::env::var(name).unwrap_or_default();
    Script::parse(&var("FAKECUDA_FAIL"), &var("FAKECUDA_DELAY_US"))
});

/// Delays or fails this call where the script says so.
#[inline]
pub(crate) fn apply(func: Func) -> Result<(), Error> {
    match &*SCRIPT {
        Ok(script) => script.rules[func.index()].as_deref().map_or(Ok(()), Rule::apply),
        // cuInit says what is wrong with it, and nothing works without cuInit.
        Err(_) => Ok(()),
    }
}

impl Rule {
    fn apply(&self) -> Result<(), Error> {
        let call = self.seen.fetch_add(1, Ordering::Relaxed);
        if self.delay_ns > 0 {
            clock::sleep_until(clock::now() + self.delay_ns);
        }
        match self.failure {
            Some(f) if call >= f.after && call - f.after < f.times => Err(f.error),
            _ => Ok(()),
        }
    }
}

impl Script {
    fn parse(fail: &str, delay_us: &str) -> Result<Self, String> {
        let mut script = Self { rules: Func::ALL.iter().map(|_| None).collect() };
        for item in items(fail) {
            let (name, rest) = item.split_once(':').unwrap_or((item, ""));
            let func = function("FAKECUDA_FAIL", name)?;
            script.rule(func).failure = Some(Failure::parse(func, rest)?);
        }
        for item in items(delay_us) {
            let (name, us) = item.split_once('=').unwrap_or((item, ""));
            let us: u64 =
                us.parse().map_err(|_| format!("FAKECUDA_DELAY_US: {item:?}: want function=microseconds"))?;
            script.rule(function("FAKECUDA_DELAY_US", name)?).delay_ns = us * 1000;
        }
        Ok(script)
    }

    fn rule(&mut self, func: Func) -> &mut Rule {
        self.rules[func.index()].get_or_insert_default()
    }
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn function(variable: &str, name: &str) -> Result<Func, String> {
    Func::from_name(name).ok_or_else(|| format!("{variable}: this library exports no function {name:?}"))
}

impl Failure {
    fn parse(func: Func, options: &str) -> Result<Self, String> {
        let mut failure = Self { after: 0, times: u64::MAX, error: usual(func) };
        for option in options.split(':').filter(|o| !o.is_empty()) {
            let wrong = || format!("FAKECUDA_FAIL: {option:?}: want after=N, times=N or code=N");
            let (key, value) = option.split_once('=').ok_or_else(wrong)?;
            let value: u64 = value.parse().map_err(|_| wrong())?;
            match key {
                "after" => failure.after = value,
                "times" => failure.times = value,
                "code" => failure.error = Error::from_code(u32::try_from(value).map_err(|_| wrong())?),
                _ => return Err(wrong()),
            }
        }
        Ok(failure)
    }
}

/// The failure that this function is best known for.
fn usual(func: Func) -> Error {
    let name = func.name();
    if name.starts_with("cuMem") && name.contains("Alloc") {
        Error::OUT_OF_MEMORY
    } else if name.contains("Launch") {
        Error::LAUNCH_FAILED
    } else {
        Error::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripted_calls_fail_and_no_others() {
        let cases = [
            ("cuMemAlloc_v2:after=2", Func::cuMemAlloc_v2, vec![0, 0, 2, 2]),
            ("cuMemAlloc_v2:after=1:times=1:code=46", Func::cuMemAlloc_v2, vec![0, 46, 0]),
            (" cuLaunchKernel , cuCtxSynchronize:after=9", Func::cuLaunchKernel, vec![719, 719]),
            ("cuLaunchKernel", Func::cuLaunchKernel_ptsz, vec![0]),
        ];
        for (text, func, want) in cases {
            let script = Script::parse(text, "").unwrap();
            let call = || script.rules[func.index()].as_deref().map_or(Ok(()), Rule::apply);
            let got: Vec<u32> = want.iter().map(|_| call().err().map_or(0, Error::code)).collect();
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn a_delayed_call_takes_that_long() {
        let script = Script::parse("", "cuMemAlloc_v2=700").unwrap();
        let before = clock::now();
        script.rules[Func::cuMemAlloc_v2.index()].as_deref().unwrap().apply().unwrap();
        assert!(clock::now() - before >= 700_000);
    }

    #[test]
    fn mistakes_are_named() {
        for (fail, delay, word) in [
            ("cuMemAlok", "", "cuMemAlok"),
            ("cuMemAlloc_v2:befor=1", "", "befor"),
            ("cuMemAlloc_v2:after=x", "", "after=x"),
            ("", "cuMemAlloc_v2", "microseconds"),
            ("", "cuNo=1", "cuNo"),
        ] {
            let sentence = Script::parse(fail, delay).err().unwrap();
            assert!(sentence.contains(word), "{sentence}");
        }
    }
}
