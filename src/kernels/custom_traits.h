// More of C++'s standard library for kernels: type traits, function objects, sequences of integers, tuples.
#pragma once
#include "custom_std.h"

namespace std {

// --- <type_traits>
template <class A, class B>
struct is_convertible : bool_constant<__is_convertible(A, B)> {};
template <class A, class B>
struct is_base_of : bool_constant<__is_base_of(A, B)> {};
template <class T, class... A>
struct is_constructible : bool_constant<__is_constructible(T, A...)> {};
#define SDX_TRAIT(name)                        \
  template <class T>                           \
  struct name : bool_constant<__##name(T)> {}; \
  template <class T>                           \
  inline constexpr bool name##_v = __##name(T)
SDX_TRAIT(is_enum);
SDX_TRAIT(is_array);
SDX_TRAIT(is_const);
SDX_TRAIT(is_reference);
SDX_TRAIT(is_lvalue_reference);
SDX_TRAIT(is_class);
SDX_TRAIT(is_union);
SDX_TRAIT(is_function);
SDX_TRAIT(is_trivial);
SDX_TRAIT(is_standard_layout);
SDX_TRAIT(is_empty);
SDX_TRAIT(is_volatile);
SDX_TRAIT(is_object);
SDX_TRAIT(is_scalar);
#undef SDX_TRAIT
#define SDX_TYPE(name, expression) \
  template <class T>               \
  using name##_t = expression;     \
  template <class T>               \
  struct name {                    \
    using type = name##_t<T>;      \
  }
SDX_TYPE(add_pointer, __add_pointer(T));
SDX_TYPE(add_lvalue_reference, __add_lvalue_reference(T));
SDX_TYPE(add_rvalue_reference, __add_rvalue_reference(T));
SDX_TYPE(add_const, const T);
SDX_TYPE(add_volatile, volatile T);
SDX_TYPE(remove_extent, __remove_extent(T));
SDX_TYPE(remove_all_extents, __remove_all_extents(T));
SDX_TYPE(remove_cvref, __remove_cvref(T));
SDX_TYPE(remove_volatile, __remove_volatile(T));
SDX_TYPE(underlying_type, __underlying_type(T));
SDX_TYPE(type_identity, T);
#undef SDX_TYPE
template <class T>
struct remove_pointer {
  using type = remove_pointer_t<T>;
};
template <class T>
struct make_unsigned {
  using type = make_unsigned_t<T>;
};
template <class T>
struct make_signed {
  using type = make_signed_t<T>;
};
template <class A, class B>
inline constexpr bool is_convertible_v = __is_convertible(A, B);
template <class A, class B>
inline constexpr bool is_base_of_v = __is_base_of(A, B);
template <class T, class... A>
inline constexpr bool is_constructible_v = __is_constructible(T, A...);
template <class T>
inline constexpr bool is_void_v = __is_void(T);
template <class T>
inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);
template <class...>
using void_t = void;
template <class... B>
struct conjunction : bool_constant<(B::value && ...)> {};
template <class... B>
struct disjunction : bool_constant<(B::value || ...)> {};
template <class B>
struct negation : bool_constant<!B::value> {};
template <class... B>
inline constexpr bool conjunction_v = conjunction<B...>::value;
template <class... B>
inline constexpr bool disjunction_v = disjunction<B...>::value;
template <class B>
inline constexpr bool negation_v = negation<B>::value;
template <class T>
struct alignment_of : integral_constant<size_t, alignof(T)> {};
template <class T>
struct rank : integral_constant<size_t, __array_rank(T)> {};
template <class T, unsigned N = 0>
struct extent : integral_constant<size_t, __array_extent(T, N)> {};
template <size_t Size, size_t Align = Size <= 2   ? Size
                                      : Size <= 4 ? 4
                                      : Size <= 8 ? 8
                                                  : 16>
struct aligned_storage {
  struct type {
    alignas(Align) unsigned char bytes[Size];
  };
};
template <size_t Size, size_t Align = Size <= 2   ? Size
                                      : Size <= 4 ? 4
                                      : Size <= 8 ? 8
                                                  : 16>
using aligned_storage_t = typename aligned_storage<Size, Align>::type;
template <class... T>
struct common_type;
template <class T>
struct common_type<T> {
  using type = decay_t<T>;
};
template <class A, class B, class... Rest>
struct common_type<A, B, Rest...> : common_type<decltype(false ? declval<A>() : declval<B>()), Rest...> {};
template <class... T>
using common_type_t = typename common_type<T...>::type;
template <class F, class... A>
using invoke_result_t = decltype(declval<F>()(declval<A>()...));

// --- <bit>
template <class To, class From>
SDX_FN constexpr To bit_cast(const From& x) {
  return __builtin_bit_cast(To, x);
}
template <class T>
SDX_FN constexpr int popcount(T x) {
  return __builtin_popcountg(x);
}
template <class T>
SDX_FN constexpr int countl_zero(T x) {
  return __builtin_clzg(x, int(sizeof(T) * 8));
}
template <class T>
SDX_FN constexpr int countr_zero(T x) {
  return __builtin_ctzg(x, int(sizeof(T) * 8));
}
enum class byte : unsigned char {};

// --- <functional>
#define SDX_FUNCTOR(name, operation)                                                         \
  template <class T = void>                                                                  \
  struct name {                                                                              \
    SDX_FN constexpr auto operator()(const T& a, const T& b) const { return a operation b; } \
  };                                                                                         \
  template <>                                                                                \
  struct name<void> {                                                                        \
    template <class A, class B>                                                              \
    SDX_FN constexpr auto operator()(const A& a, const B& b) const {                         \
      return a operation b;                                                                  \
    }                                                                                        \
  }
SDX_FUNCTOR(plus, +);
SDX_FUNCTOR(minus, -);
SDX_FUNCTOR(multiplies, *);
SDX_FUNCTOR(divides, /);
SDX_FUNCTOR(modulus, %);
SDX_FUNCTOR(bit_and, &);
SDX_FUNCTOR(bit_or, |);
SDX_FUNCTOR(bit_xor, ^);
SDX_FUNCTOR(logical_and, &&);
SDX_FUNCTOR(logical_or, ||);
SDX_FUNCTOR(less, <);
SDX_FUNCTOR(greater, >);
SDX_FUNCTOR(less_equal, <=);
SDX_FUNCTOR(greater_equal, >=);
SDX_FUNCTOR(equal_to, ==);
SDX_FUNCTOR(not_equal_to, !=);
#undef SDX_FUNCTOR

// --- <utility>
template <class T, class U = T>
SDX_FN constexpr T exchange(T& x, U&& value) {
  T old = move(x);
  x = forward<U>(value);
  return old;
}
template <class T, T... N>
struct integer_sequence {
  using value_type = T;
  static constexpr size_t size() { return sizeof...(N); }
};
template <class T, T N>
using make_integer_sequence = __make_integer_seq<integer_sequence, T, N>;
template <size_t... N>
using index_sequence = integer_sequence<size_t, N...>;
template <size_t N>
using make_index_sequence = make_integer_sequence<size_t, N>;
template <class... T>
using index_sequence_for = make_index_sequence<sizeof...(T)>;

// --- <tuple>
template <class... T>
struct tuple;
template <>
struct tuple<> {};
template <class A, class... Rest>
struct tuple<A, Rest...> {
  A first;
  [[no_unique_address]] tuple<Rest...> rest;
  tuple() = default;
  SDX_FN constexpr tuple(A a, Rest... r) : first(static_cast<A>(a)), rest(static_cast<Rest>(r)...) {}
  /// From one of other types: tie(a, b) = make_tuple(1, 2).
  template <class B, class... More>
  SDX_FN constexpr tuple& operator=(const tuple<B, More...>& other) {
    first = other.first;
    rest = other.rest;
    return *this;
  }
};
template <size_t K, class A, class... Rest>
SDX_FN constexpr auto& get(tuple<A, Rest...>& t) {
  if constexpr (K == 0)
    return t.first;
  else
    return get<K - 1>(t.rest);
}
template <size_t K, class A, class... Rest>
SDX_FN constexpr const auto& get(const tuple<A, Rest...>& t) {
  if constexpr (K == 0)
    return t.first;
  else
    return get<K - 1>(t.rest);
}
template <class... T>
SDX_FN constexpr tuple<decay_t<T>...> make_tuple(T&&... x) {
  return {x...};
}
template <class... T>
SDX_FN constexpr tuple<T&...> tie(T&... x) {
  return {x...};
}
// What structured bindings look for.
template <class T>
struct tuple_size;
template <class... T>
struct tuple_size<tuple<T...>> : integral_constant<size_t, sizeof...(T)> {};
template <class T>
struct tuple_size<const T> : tuple_size<T> {};
template <size_t K, class T>
struct tuple_element;
template <size_t K, class... T>
struct tuple_element<K, tuple<T...>> {
  using type = __type_pack_element<K, T...>;
};
template <size_t K, class T>
struct tuple_element<K, const T> {
  using type = const typename tuple_element<K, T>::type;
};
template <size_t K, class T>
using tuple_element_t = typename tuple_element<K, T>::type;

}  // namespace std
