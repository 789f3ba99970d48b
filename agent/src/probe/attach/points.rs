//! Where the programs go in a library.

use super::{
    super::{
        elf::Function,
        hazards::{self, Decision, Facts, KernelVersion},
        prologue::Instruction,
        table::{Program, Symbol, TABLE},
        targets::{Kind, Library},
        tls,
        verdict::ProbeVerdict,
    },
    names,
};
use wire::cookie::{Cookie, FLAG_INNER};

/// One place to attach one program at.
pub(super) struct Point<'a> {
    pub(super) name: &'static str,
    pub(super) function: &'a Function,
    pub(super) cookie: u64,
}

/// The program would note calls of this library whose returns nobody sees, since its partner, which comes before it,
/// is attached nowhere.
pub(super) fn lacks_return(program: Program, library: &Library, verdicts: &[ProbeVerdict]) -> bool {
    let partner = match program {
        names::PROG_SYNC_ENTER => names::PROG_SYNC_RETURN,
        names::PROG_QUERY_ENTER => names::PROG_QUERY_RETURN,
        names::PROG_BEGIN_ENTER => names::PROG_BEGIN_RETURN,
        names::PROG_MEMORY_ENTER => names::PROG_MEMORY_RETURN,
        names::PROG_CONTEXT_ENTER => names::PROG_CONTEXT_RETURN,
        names::PROG_RESOLVE_ENTER => names::PROG_RESOLVE_RETURN,
        names::PROG_RARE_ENTER => names::PROG_RARE_RETURN,
        names::PROG_TLS_ENTER => names::PROG_TLS_RETURN,
        _ => return false,
    };
    let is_attached = |verdict: &ProbeVerdict| verdict.program == partner && verdict.attached > 0;
    !points(program, library).0.is_empty() && !verdicts.iter().any(is_attached)
}

/// Places of one program in a library, and the rows that every driver should have and this one lacks.
pub(super) fn points(program: Program, library: &Library) -> (Vec<Point<'_>>, Vec<&'static str>) {
    match library.kind {
        Kind::Cuda | Kind::Runtime => cuda_points(program, library),
        Kind::Tls => tls_points(program, library),
    }
}

/// Blocking copies of a driver of which no return can be probed: they are no waits then, and are counted as all others.
pub(super) fn without_returns(program: Program, library: &Library, kernel: KernelVersion) -> Vec<Point<'_>> {
    let facts = Facts {
        kernel,
        x86_64: cfg!(target_arch = "x86_64"),
        returns: true,
        instruction: Instruction::Push,
        stack_bytes: None,
        go: library.is_go,
    };
    if program != names::PROG_COPY || hazards::check(&facts) == Decision::Attach {
        return Vec::new();
    }
    let is_runtime = library.kind == Kind::Runtime;
    let mut points = Vec::new();
    for (number, row) in (0u16..).zip(TABLE).filter(|(_, row)| row.blocking && row.runtime == is_runtime) {
        for &symbol in row.symbols {
            if let Some(function) = library.functions.get(symbol.name) {
                add_point(&mut points, symbol.name, function, row.cookie(number, symbol).encode());
            }
        }
    }
    points
}

fn tls_points(program: Program, library: &Library) -> (Vec<Point<'_>>, Vec<&'static str>) {
    let wanted = tls::FUNCTIONS.iter().filter(|function| function.programs.contains(&program));
    let (mut points, mut absent) = (Vec::new(), Vec::new());
    for function in wanted {
        match library.functions.get(function.symbol) {
            Some(found) => add_point(&mut points, function.symbol, found, function.cookie),
            None if function.required => absent.push(function.symbol),
            None => {}
        }
    }
    (points, absent)
}

fn cuda_points(program: Program, driver: &Library) -> (Vec<Point<'_>>, Vec<&'static str>) {
    let mut points = Vec::new();
    let mut absent = Vec::new();
    let is_runtime = driver.kind == Kind::Runtime;
    let rows = (0u16..).zip(TABLE).filter(|(_, row)| row.runtime == is_runtime);
    let rows = rows.filter(|(_, row)| row.programs().contains(&program));
    for (number, row) in rows {
        for &symbol in row.symbols {
            if let Some(function) = driver.functions.get(symbol.name) {
                add_point(&mut points, symbol.name, function, row.cookie(number, symbol).encode());
            }
        }
        let has_any = row.symbols.iter().any(|symbol| driver.functions.contains_key(symbol.name));
        if row.required && !has_any {
            absent.push(row.name);
        }
    }
    (points, absent)
}

/// Two names of one address are one place: attached twice, each call would count twice.
fn add_point<'a>(points: &mut Vec<Point<'a>>, name: &'static str, function: &'a Function, cookie: u64) {
    if points.iter().all(|point| point.function.offset != function.offset) {
        points.push(Point { name, function, cookie });
    }
}

/// The place of one program at a function that has no name, if the row needs the program.
pub(super) fn inner_point(
    program: Program,
    row: u16,
    symbol: Symbol,
    function: &Function,
) -> Option<Point<'_>> {
    let of = TABLE.get(usize::from(row)).filter(|of| of.programs().contains(&program))?;
    let cookie = of.cookie(row, symbol);
    let cookie = Cookie { flags: cookie.flags | FLAG_INNER, ..cookie }.encode();
    Some(Point { name: symbol.name, function, cookie })
}
