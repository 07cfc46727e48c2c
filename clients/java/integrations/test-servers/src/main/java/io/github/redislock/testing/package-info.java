/** Real servers for the tests of the integrations. */
package io.github.redislock.testing;
