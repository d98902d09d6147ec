/* Quantiles of the symmetric beta distribution, for the beta schedule. */
#include <math.h>

#include "models/schedulers/scheduler.h"

/* The continued fraction of the incomplete beta function with a = b (Press 2007, 6.4), by Lentz's method; x is at most 1/2,
 * where it converges in a few dozen terms. */
static double fraction(double a, double x)
{
    double c = 1, d = 1 / (1 - 2 * a * x / (a + 1)), f = d;
    for (int m = 1; m < 200; m++) {
        double even = m * (a - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        f *= d * c;
        double odd = -(a + m) * (2 * a + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        f *= d * c;
        if (fabs(d * c - 1) < 1e-16)
            break;
    }
    return f;
}

/* P(X <= x) */
static double cumulative(double a, double x)
{
    if (x > 0.5)
        return 1 - cumulative(a, 1 - x);
    return x <= 0 ? 0 : tgamma(2 * a) / (tgamma(a) * tgamma(a)) * pow(x * (1 - x), a) * fraction(a, x) / a;
}

double tern_beta_quantile(double a, double p)
{
    double low = 0, high = 1;
    if (p <= 0 || p >= 1)
        return p <= 0 ? 0 : 1;
    for (int i = 0; i < 60; i++) { /* halving: 60 bits are more than a double has */
        double middle = (low + high) / 2;
        if (cumulative(a, middle) < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}
