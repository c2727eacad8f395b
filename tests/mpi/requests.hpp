#pragma once

namespace dat::test {

/// Messages between two ranks that this process has begun with MPI_Isend or MPI_Irecv and not completed yet.
[[nodiscard]] int requests_under_way();
/// The most of them at once, since this was asked last.
[[nodiscard]] int most_requests();

}  // namespace dat::test
