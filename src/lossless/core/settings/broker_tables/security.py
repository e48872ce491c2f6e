"""A broker's settings: TLS, SASL and who may do what. Written as table.py says."""

TABLE = """\
authorizer.class.name: string = "" (honoured)
    The class that decides who may do what.
principal.builder.class: class = org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder (per-broker)
    The class that says who a connection belongs to.
security.providers: string
    Classes that provide security algorithms.
delegation.token.secret.key: password
    The key that delegation tokens are signed with.
delegation.token.expiry.time.ms: long 1.. = 86400000
    How long a delegation token is valid before it must be renewed.
delegation.token.max.lifetime.ms: long 1.. = 604800000
    After so much time a delegation token cannot be renewed any more.
delegation.token.expiry.check.interval.ms: long 1.. = 3600000
    How often expired delegation tokens are removed.
ssl.client.auth: string of required requested none = none (honoured, per-broker)
    Whether clients must, may or do not show a certificate.
ssl.protocol: string = TLSv1.3 (per-broker)
    The TLS version that is preferred.
ssl.enabled.protocols: list = TLSv1.2,TLSv1.3 (honoured, per-broker)
    The TLS versions that are accepted.
ssl.cipher.suites: list = "" (per-broker)
    The cipher suites that are accepted.
ssl.provider: string (per-broker)
    The security provider of TLS connections.
ssl.engine.factory.class: class (per-broker)
    The class that makes TLS engines.
ssl.keystore.type: string = JKS (honoured, per-broker)
    The format of the key store.
ssl.keystore.location: string (honoured, per-broker)
    The file of the key store.
ssl.keystore.password: password (per-broker)
    The password of the key store.
ssl.keystore.key: password (honoured, per-broker)
    The private key, given as text.
ssl.keystore.certificate.chain: password (honoured, per-broker)
    The certificates that go with the private key, given as text.
ssl.key.password: password (honoured, per-broker)
    The password of the private key.
ssl.keymanager.algorithm: string = SunX509 (per-broker)
    The algorithm of the key manager.
ssl.truststore.type: string = JKS (honoured, per-broker)
    The format of the trust store.
ssl.truststore.location: string (honoured, per-broker)
    The file of the trust store.
ssl.truststore.password: password (per-broker)
    The password of the trust store.
ssl.truststore.certificates: password (honoured, per-broker)
    The trusted certificates, given as text.
ssl.trustmanager.algorithm: string = PKIX (per-broker)
    The algorithm of the trust manager.
ssl.endpoint.identification.algorithm: string = https (honoured, per-broker)
    How the name in a server's certificate is compared with its address.
ssl.secure.random.implementation: string (per-broker)
    The source of randomness of TLS.
ssl.principal.mapping.rules: string = DEFAULT
    Rules that make a short name of a certificate's name.
ssl.allow.dn.changes: boolean = false
    Whether a new certificate may carry another name.
ssl.allow.san.changes: boolean = false
    Whether a new certificate may carry other alternative names.
sasl.enabled.mechanisms: list = GSSAPI (honoured, per-broker)
    The SASL mechanisms that clients may use.
sasl.mechanism.inter.broker.protocol: string = GSSAPI (honoured, per-broker)
    The SASL mechanism that brokers use among each other.
sasl.mechanism.controller.protocol: string = GSSAPI
    The SASL mechanism that is used towards controllers.
sasl.jaas.config: password (honoured, per-broker)
    The login of SASL, as a JAAS entry.
sasl.client.callback.handler.class: class
    The class that answers a SASL client's questions.
sasl.server.callback.handler.class: class
    The class that answers a SASL server's questions.
sasl.server.max.receive.size: int = 524288 (honoured)
    The largest message before a client is authenticated.
sasl.login.class: class
    The class that logs in.
sasl.login.callback.handler.class: class
    The class that answers the questions of a login.
sasl.login.connect.timeout.ms: int
    How long a login waits for a connection to the provider.
sasl.login.read.timeout.ms: int
    How long a login waits for the provider's answer.
sasl.login.refresh.buffer.seconds: short = 300 (per-broker)
    So long before it expires a credential is renewed at the latest.
sasl.login.refresh.min.period.seconds: short = 60 (per-broker)
    How long a credential is used at least before it is renewed.
sasl.login.refresh.window.factor: double = 0.8 (per-broker)
    After this part of its life a credential is renewed.
sasl.login.refresh.window.jitter: double = 0.05 (per-broker)
    How far chance moves the time of renewal.
sasl.login.retry.backoff.ms: long = 100
    The first pause before a login is tried again.
sasl.login.retry.backoff.max.ms: long = 10000
    The longest pause before a login is tried again.
sasl.kerberos.service.name: string (per-broker)
    The Kerberos name that brokers run under.
sasl.kerberos.kinit.cmd: string = /usr/bin/kinit (per-broker)
    The path of kinit.
sasl.kerberos.min.time.before.relogin: long = 60000 (per-broker)
    How long to wait between two Kerberos logins.
sasl.kerberos.principal.to.local.rules: list = DEFAULT (per-broker)
    Rules that make a short name of a Kerberos principal.
sasl.kerberos.ticket.renew.jitter: double = 0.05 (per-broker)
    How far chance moves the renewal of a ticket.
sasl.kerberos.ticket.renew.window.factor: double = 0.8 (per-broker)
    After this part of its life a ticket is renewed.
sasl.oauthbearer.token.endpoint.url: string
    Where tokens are issued.
sasl.oauthbearer.scope: string
    The access that a token asks for.
sasl.oauthbearer.scope.claim.name: string = scope (honoured)
    The claim that holds the scope.
sasl.oauthbearer.sub.claim.name: string = sub (honoured)
    The claim that holds the subject.
sasl.oauthbearer.client.credentials.client.id: string
    The name under which tokens are asked for.
sasl.oauthbearer.client.credentials.client.secret: password
    The secret with which tokens are asked for.
sasl.oauthbearer.clock.skew.seconds: int = 30 (honoured)
    How far the clocks of provider and broker may differ.
sasl.oauthbearer.expected.audience: list (honoured)
    Audiences that a token must be made for.
sasl.oauthbearer.expected.issuer: string (honoured)
    Who must have issued a token.
sasl.oauthbearer.jwks.endpoint.url: string (honoured)
    Where the provider's keys are found.
sasl.oauthbearer.jwks.endpoint.refresh.ms: long = 3600000 (honoured)
    How often the provider's keys are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms: long = 100 (honoured)
    The first pause before the provider's keys are asked for again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms: long = 10000
    The longest pause before the provider's keys are asked for again.
sasl.oauthbearer.jwt.retriever.class: class = org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    The class that fetches tokens.
sasl.oauthbearer.jwt.validator.class: class = org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    The class that checks tokens.
sasl.oauthbearer.assertion.file: string
    A file with an assertion that was made before.
sasl.oauthbearer.assertion.template.file: string
    A file with headers and claims for assertions.
sasl.oauthbearer.assertion.algorithm: string of any case ES256 RS256 = RS256
    How assertions are signed.
sasl.oauthbearer.assertion.private.key.file: string
    The file of the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase: password
    The password of the key that signs assertions.
sasl.oauthbearer.assertion.claim.aud: string
    The audience that an assertion names.
sasl.oauthbearer.assertion.claim.exp.seconds: int 0..86400 = 300
    How long an assertion is valid.
sasl.oauthbearer.assertion.claim.iss: string
    The issuer that an assertion names.
sasl.oauthbearer.assertion.claim.jti.include: boolean = false
    Whether an assertion carries an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds: int 0..3600 = 60
    How far in the past an assertion begins to be valid.
sasl.oauthbearer.assertion.claim.sub: string
    The subject that an assertion names.
"""  # noqa: E501
