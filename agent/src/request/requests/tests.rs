//! The books of services, of which there may be more than there is room for.

use super::{super::services::SERVICES_KEPT, *};

/// A request of a service is read, and answered if that is wanted, by its only process.
fn request(requests: &mut Requests, health: &mut Health, number: u32, answered: bool) {
    let (id, service) = (ExchangeId(number.into()), ServiceId(number));
    let mut out = Vec::new();
    let (time_ns, tid, sight) = (u64::from(number), 1, Box::default());
    let read = Tracked::RequestRead { exchange: id, service, time_ns, tid, client: None, sight };
    requests.apply(read, health, &mut out);
    if answered {
        let exchange = Exchange { id: Some(id), service: Some(service), ..Exchange::default() };
        requests.apply(Tracked::Finished(Box::new(exchange)), health, &mut out);
    }
}

fn exit(requests: &mut Requests, health: &mut Health, number: u32, last: bool) {
    let exit = Tracked::ProcessExit { service: ServiceId(number), pid: number, last, time_ns: 0 };
    requests.apply(exit, health, &mut Vec::new());
}

#[test]
fn services_whose_processes_are_gone_make_room() {
    let (mut requests, mut health) = (Requests::new(), Health::default());
    for number in 0..5000 {
        request(&mut requests, &mut health, number, true);
        exit(&mut requests, &mut health, number, true);
    }
    assert_eq!(health.limits.get("services"), None);
    assert_eq!(requests.in_flight().count(), SERVICES_KEPT);
    request(&mut requests, &mut health, 5000, false);
    assert!(requests.in_flight().any(|(service, count)| (service, count) == (ServiceId(5000), 1)));
}

/// A process that comes back, and a request that is not over, keep the books.
#[test]
fn services_in_use_stay() {
    let (mut requests, mut health) = (Requests::new(), Health::default());
    request(&mut requests, &mut health, 0, false);
    exit(&mut requests, &mut health, 0, true);
    request(&mut requests, &mut health, 1, true);
    exit(&mut requests, &mut health, 1, true);
    request(&mut requests, &mut health, 1, true);
    for number in 2..2000 {
        request(&mut requests, &mut health, number, true);
        exit(&mut requests, &mut health, number, true);
    }
    let kept: Vec<u32> = requests.in_flight().map(|(service, _)| service.0).take(3).collect();
    assert_eq!(kept, [0, 1, 978]);
}

#[test]
fn living_services_are_bounded() {
    let (mut requests, mut health) = (Requests::new(), Health::default());
    for number in 0..1030 {
        request(&mut requests, &mut health, number, true);
        exit(&mut requests, &mut health, number, false);
    }
    assert_eq!((health.limits["services"], requests.in_flight().count()), (6, SERVICES_KEPT));
}
